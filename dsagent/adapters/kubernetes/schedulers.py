"""The replicas of the scheduler plugin, asked over HTTP: those of a cluster through the API server's proxy to their
pods, others by their URL.
"""

import http.client
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
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


class Replica(NamedTuple):
    """One of them. `get` gives the body of its answer at a path, whatever the status; raises ClusterUnreachable."""

    name: str
    get: Callable[[str], bytes]


def replicas_of(cluster: ApiCluster) -> list[Replica]:
    """Those that run in a cluster; raises ClusterUnreachable, NotPermitted, UsageError."""
    namespace = os.environ.get(ENV_CLUSTER_NAMESPACE) or DEFAULT_NAMESPACE
    found = cluster.listing(PODS, Scope(namespace, REPLICAS, "status.phase=Running")).items
    if not found:
        cause = f"no pod of the scheduler plugin runs in namespace {namespace}"
        raise UsageError("ask", "the scheduler plugin", cause, f"{ENV_CLUSTER_NAMESPACE} names another namespace")
    names = [str(metadata(replica)["name"]) for replica in found]
    return [Replica(name, partial(_get_by_proxy, cluster, namespace, name)) for name in names]


def replicas_at(urls: Sequence[str]) -> list[Replica]:
    """Those at these addresses; raises UsageError."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise UsageError("ask", url, "it is no URL of a scheduler plugin", "write http://HOST:PORT")
    return [Replica(url, partial(_get_by_url, url)) for url in urls]


def explanations(replicas: Sequence[Replica], query: Mapping[str, str]) -> Iterator[Answer]:
    """What each answers to /explain; raises ClusterUnreachable."""
    for replica in replicas:
        yield _read(replica.get(f"/explain?{urlencode(query)}"), replica.name)


def _get_by_proxy(cluster: ApiCluster, namespace: str, name: str, where: str) -> bytes:
    authorization = cluster.server.authorization()
    connection = cluster.connection()
    try:
        target = path(PODS, namespace, f"https:{name}:{SCHEDULER_PORT}", "proxy") + where
        connection.request("GET", target, headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(f"scheduler plugin {name}", str(error)) from error
    finally:
        connection.close()


def _get_by_url(url: str, where: str) -> bytes:
    try:
        with urlopen(f"{url.rstrip('/')}{where}", timeout=SECONDS) as answer:  # noqa: S310 - replicas_at looks at it
            return bytes(answer.read())
    except HTTPError as error:
        return error.read()
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
