"""A Kubernetes API server over HTTP, in raw JSON: the kubernetes package's models cost 0.6 ms and 69 KB a pod."""

import contextlib
import http.client
import select
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

import orjson

from dsagent.adapters.kubernetes.config import ApiServer
from dsagent.core.cluster import EVERYWHERE, Change, Listing, Object, PatchKind, Resource, Scope, metadata
from dsagent.core.errors import (
    ClusterRefused,
    ClusterUnreachable,
    DsagentError,
    HistoryGone,
    NoSuchObject,
    NotPermitted,
    ObjectConflict,
)

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
LATE_SECONDS = 10.0  # the server ends a watch itself when its time is over
PAGE = 500
KEPT = 8  # idle connections

_PATCHES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_LATER = frozenset({429, 500, 502, 503, 504})
_REFUSALS: Mapping[int, type[DsagentError]] = {
    401: NotPermitted,
    403: NotPermitted,
    404: NoSuchObject,
    409: ObjectConflict,
    410: HistoryGone,
}

Method = Literal["GET", "POST", "PATCH", "DELETE"]


class ApiCluster:
    """See Cluster. `manager` is the name under which fields are written."""

    def __init__(self, server: ApiServer, manager: str) -> None:
        self.server = server
        self._manager = manager
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Whoever drops it leaves no connection open."""
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept; the next request opens another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See Cluster.get."""
        return self._object("GET", path(resource, namespace, name))

    def listing(self, resource: Resource, scope: Scope = EVERYWHERE) -> Listing:
        """See Cluster.listing."""
        items: list[Object] = []
        query = {**_selectors(scope), "limit": str(PAGE)}
        while True:
            document = self._object("GET", path(resource, scope.namespace), query)
            items += document.get("items") or ()
            found = metadata(document)
            if not found.get("continue"):
                return Listing(items, found.get("resourceVersion", ""))
            query["continue"] = found["continue"]

    def create(
        self, resource: Resource, body: Object, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Object:
        """See Cluster.create."""
        query = {"fieldManager": self._manager}
        return self._object("POST", path(resource, namespace, name, subresource), query, body)

    def patch(
        self,
        resource: Resource,
        name: str,
        change: Object | Sequence[Object],
        namespace: str = "",
        *,
        how: PatchKind = "merge",
        subresource: str = "",
    ) -> Object:
        """See Cluster.patch."""
        query = {"fieldManager": self._manager} | ({"force": "true"} if how == "apply" else {})
        return self._object("PATCH", path(resource, namespace, name, subresource), query, change, _PATCHES[how])

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """See Cluster.delete."""
        body = {"preconditions": {"uid": uid}} if uid else None
        self._object("DELETE", path(resource, namespace, name), body=body)

    def watch(
        self, resource: Resource, since: str, scope: Scope = EVERYWHERE, *, seconds: float = 300
    ) -> Iterator[Change | None]:
        """See Cluster.watch."""
        query = {
            **_selectors(scope),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        where = path(resource, scope.namespace)
        connection, answer = self._send("GET", where, query, None, "", seconds + LATE_SECONDS)
        try:
            if answer.status >= 400:
                raise self._refusal("GET", where, answer.status, self._read(answer))
            yield None
            while line := self._line(answer):
                yield _change(orjson.loads(line), where)
        finally:
            connection.close()

    def _object(
        self,
        method: Method,
        where: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        media_type: str = "application/json",
    ) -> Object:
        connection, answer = self._send(method, where, query or {}, body, media_type, ANSWER_SECONDS)
        try:
            data = self._read(answer)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        if answer.status >= 400:
            raise self._refusal(method, where, answer.status, data)
        return cast("Object", orjson.loads(data))

    def _send(
        self, method: Method, where: str, query: Mapping[str, str], body: object, media_type: str, seconds: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        target = _target(where, query)
        headers = {"Content-Type": media_type} if body is not None else {}
        kept = self._take()
        if kept is not None:
            try:
                return kept, self._exchange(kept, method, target, body, headers, seconds)
            except ClusterUnreachable:  # it was at its end; what was sent may have arrived
                if method == "POST":
                    raise
        connection = self.connection()
        return connection, self._exchange(connection, method, target, body, headers, seconds)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: Method,
        target: str,
        body: object,
        headers: Mapping[str, str],
        seconds: float,
    ) -> http.client.HTTPResponse:
        """One request on a connection, which is closed if that fails."""
        authorization = self.server.authorization()
        shown = {"Authorization": authorization} if authorization else {}
        data = None if body is None else orjson.dumps(body)
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(seconds)
            connection.request(method, target, data, {"Accept": "application/json", **shown, **headers})
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._lost(error) from error

    def connection(self) -> http.client.HTTPConnection:
        """A new connection to the server, not yet made."""
        server = self.server
        if server.context is None:
            return http.client.HTTPConnection(server.host, server.port, timeout=CONNECT_SECONDS)
        return _Connection(server, timeout=CONNECT_SECONDS)

    def _take(self) -> http.client.HTTPConnection | None:
        """A connection that was kept and that the server has not closed meanwhile."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.sock is not None and not _is_readable(connection.sock):
                return connection
            connection.close()

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if connection.sock is not None and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error

    def _line(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.readline()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error

    @property
    def _subject(self) -> str:
        return f"the Kubernetes API at {self.server.host}:{self.server.port}"

    def _lost(self, error: OSError | http.client.HTTPException) -> ClusterUnreachable:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ClusterUnreachable("ask", self._subject, cause, "see that it runs and that this machine reaches it")

    def _refusal(self, method: str, where: str, status: int, data: bytes) -> DsagentError:
        message = _message(data) or f"it answered with status {status}"
        if status in _LATER:
            return ClusterUnreachable("ask", self._subject, message, "ask again later")
        return _REFUSALS.get(status, ClusterRefused)(method.lower(), f"{where} of {self._subject}", message)


class _Connection(http.client.HTTPSConnection):
    """HTTP over TLS to an API server; one that is gone without a word is noticed after half a minute."""

    def __init__(self, server: ApiServer, timeout: float) -> None:
        super().__init__(server.host, server.port, timeout=timeout, context=server.context)
        self._name = server.server_name or server.host
        self._tls = cast("Any", server.context)

    def connect(self) -> None:
        """Connects, and proves who the server is."""
        plain = socket.create_connection((self.host, self.port), self.timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
                plain.setsockopt(socket.IPPROTO_TCP, option, value)
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


def path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of an object, a collection or a subresource."""
    parts = ["apis", resource.group] if resource.group else ["api"]
    parts.append(resource.version)
    if namespace and resource.namespaced:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource.plural, name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _target(where: str, query: Mapping[str, str]) -> str:
    return f"{where}?{urlencode(query)}" if query else where


def _selectors(scope: Scope) -> dict[str, str]:
    given = {"labelSelector": scope.labels, "fieldSelector": scope.fields}
    return {name: value for name, value in given.items() if value}


def _change(document: Object, where: str) -> Change:
    """Raises HistoryGone, ClusterRefused, ClusterUnreachable for an event that tells of an error."""
    kind, found = document["type"].lower(), document["object"]
    if kind != "error":
        return Change(kind, found)
    status = found.get("code", 0)
    error = ClusterUnreachable if status in _LATER else _REFUSALS.get(status, ClusterRefused)
    raise error("watch", where, found.get("message", "the server ended it"))


def _message(data: bytes) -> str:
    with contextlib.suppress(orjson.JSONDecodeError, AttributeError, TypeError):
        return str(orjson.loads(data).get("message", ""))
    return ""


def _is_readable(connection: socket.socket) -> bool:
    """Whether something has come on an idle connection: its end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
