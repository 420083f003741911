"""As much of a client of the Kubernetes API as a pod on each node needs: get, create and server-side apply, in JSON.

It reads one object seldom and writes one when something changes; docs/adr/0013 says why it has no package for that.
"""

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from gpu_topology.errors import TopologyError, UsageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10.0  # for an answer
MANAGER = "gpu-topology"
NOT_FOUND, FORBIDDEN = 404, 403

Object = Mapping[str, Any]
"""A JSON document as the API has it."""

_APPLY = "application/apply-patch+yaml"  # of which JSON is a part


class ApiError(TopologyError):
    """The API did not answer, or refused. `status` is HTTP's, 0 if there was no answer."""

    def __init__(self, action: str, subject: str, cause: str, status: int = 0) -> None:
        super().__init__(action, subject, cause)
        self.status = status


@dataclass(frozen=True)
class ApiServer:
    """The API server as a pod reaches it, with its service account. A request is a connection: there are few."""

    host: str
    port: int
    account: Path = ACCOUNT

    def get(self, path: str) -> Object:
        """An object. Raises ApiError."""
        return self._ask("GET", path)

    def create(self, path: str, body: Object) -> Object:
        """Makes an object in a collection. Raises ApiError."""
        return self._ask("POST", path, body, "application/json")

    def apply(self, path: str, body: Object) -> Object:
        """Makes the object, or the named subresource, have these fields, and no others that we set. Raises ApiError."""
        return self._ask("PATCH", f"{path}?fieldManager={MANAGER}&force=true", body, _APPLY)

    def _ask(
        self, method: Literal["GET", "POST", "PATCH"], path: str, body: Object | None = None, kind: str = ""
    ) -> Object:
        context = _trusting(self.account / "ca.crt")
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=SECONDS, context=context)
        return ask(connection, method, path, token(self.account), body, kind)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    bearer: str,
    body: Object | None = None,
    kind: str = "",
) -> Object:
    """One request and its answer; closes the connection. Raises ApiError."""
    headers = {"Accept": "application/json", "Authorization": f"Bearer {bearer}"}
    headers |= {"Content-Type": kind} if kind else {}
    subject = f"{path.partition('?')[0]} at {connection.host}:{connection.port}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        read = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ApiError(method.lower(), subject, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if not isinstance(read, dict):
        raise ApiError(method.lower(), subject, "it did not answer with an object", answer.status)
    if answer.status >= http.client.BAD_REQUEST:
        raise ApiError(method.lower(), subject, str(read.get("message") or answer.reason), answer.status)
    return read


def server_of_pod(environ: Mapping[str, str] = os.environ) -> ApiServer:
    """The one that this pod's variables name. Raises UsageError."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isdecimal():
        cause = "KUBERNETES_SERVICE_HOST is not set"
        raise UsageError("reach", "the Kubernetes API", cause, "leave --node away where this runs in no pod")
    return ApiServer(host, int(port))


def token(account: Path) -> str:
    """The account's token, read each time, for kubelet renews it. Raises ApiError."""
    try:
        return (account / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ApiError("read", str(account / "token"), str(error)) from error


def name_in_path(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _trusting(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise ApiError("trust", str(authority), str(error)) from error
