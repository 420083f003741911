"""The replicas of the scheduler plugin, asked why a pod is where it is: those of a cluster through the API server's
proxy to their pods, others by their URL.
"""

import http.client
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson

from dsagent.adapters.kubernetes.agents import DEFAULT_NAMESPACE
from dsagent.adapters.kubernetes.client import ApiCluster, path
from dsagent.contract import ENV_CLUSTER_NAMESPACE, SCHEDULER_PORT
from dsagent.core.cluster import PODS, Scope, metadata
from dsagent.core.errors import ClusterUnreachable, UsageError

REPLICAS = "app.kubernetes.io/name=dsagent,app.kubernetes.io/component=scheduler"
SECONDS = 30.0

Answer = Mapping[str, Any]


def ask_replicas(cluster: ApiCluster, query: Mapping[str, str]) -> Iterator[Answer]:
    """What each running replica answers to /explain; raises ClusterUnreachable, NotPermitted, UsageError."""
    namespace = os.environ.get(ENV_CLUSTER_NAMESPACE) or DEFAULT_NAMESPACE
    found = cluster.listing(PODS, Scope(namespace, REPLICAS, "status.phase=Running")).items
    if not found:
        cause = f"no pod of the scheduler plugin runs in namespace {namespace}"
        raise UsageError("explain", "the pod", cause, f"{ENV_CLUSTER_NAMESPACE} names another namespace")
    authorization = cluster.server.authorization()
    for replica in found:
        name = metadata(replica)["name"]
        where = path(PODS, namespace, f"https:{name}:{SCHEDULER_PORT}", "proxy") + "/explain"
        headers = {"Authorization": authorization} if authorization else {}
        connection = cluster.connection()
        try:
            connection.request("GET", f"{where}?{urlencode(query)}", headers=headers)
            yield _read(connection.getresponse().read(), f"scheduler plugin {name}")
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(f"scheduler plugin {name}", str(error)) from error
        finally:
            connection.close()


def ask_urls(urls: Sequence[str], query: Mapping[str, str]) -> Iterator[Answer]:
    """What each of these answers to /explain; raises ClusterUnreachable, UsageError."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise UsageError("ask", url, "it is no URL of a scheduler plugin", "write http://HOST:PORT")
        try:
            with urlopen(f"{url.rstrip('/')}/explain?{urlencode(query)}", timeout=SECONDS) as answer:  # noqa: S310 - see above
                yield _read(answer.read(), url)
        except HTTPError as error:
            yield _read(error.read(), url)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(url, str(error)) from error


def _read(body: bytes, who: str) -> Answer:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _unreachable(who, body[:200].decode(errors="replace")) from error
    if not isinstance(found, dict) or not ("nodes" in found or "problem" in found):
        raise _unreachable(who, str(found.get("message", found)) if isinstance(found, dict) else "no explanation")
    return found


def _unreachable(who: str, cause: str) -> ClusterUnreachable:
    return ClusterUnreachable("ask", who, cause, "see that it runs and that you may use pods/proxy there")
