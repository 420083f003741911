"""The cluster in memory behind HTTPS, as a pod with a service account reaches the API server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any
from urllib.parse import unquote, urlsplit

from dsagent.core import cluster as kinds
from dsagent.core.cluster import Resource
from dsagent.core.errors import DsagentError, NoSuchObject, ObjectConflict
from tests.fakes.cluster import MemoryCluster
from tests.support.certificates import make_certificates

TOKEN = "canary-token"  # noqa: S105 - of nobody
_KINDS = {one.plural: one for one in vars(kinds).values() if isinstance(one, Resource)}
_STATUS: dict[type[DsagentError], int] = {NoSuchObject: 404, ObjectConflict: 409}


@contextmanager
def api_server(cluster: MemoryCluster, folder: Path) -> Iterator[tuple[int, Path]]:
    """Its port, and the folder of the service account with which it is asked."""
    made = make_certificates(folder)
    (folder / "ca.crt").write_bytes(made.authority.read_bytes())
    (folder / "token").write_text(TOKEN)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], folder
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(cluster: MemoryCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_PATCH(self) -> None:
            self._answer("PATCH")

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, said = 401, {"message": "Unauthorized"}
            else:
                status, said = _do(cluster, method, urlsplit(self.path).path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _do(cluster: MemoryCluster, method: str, path: str, body: Any) -> tuple[int, Any]:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    del parts[: 2 if parts[0] == "api" else 3]  # the group and its version
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace = parts[1]
        del parts[:2]
    plural, name, subresource = (*parts, "", "")[:3]
    resource = _KINDS[plural]
    try:
        if method == "GET":
            return 200, cluster.get(resource, name, namespace)
        if method == "POST":
            return 201, cluster.create(resource, body, namespace)
        if subresource:  # what is not applied any more goes; the names only say which object it is
            before = cluster.get(resource, name, namespace).get(subresource) or {}
            body = {subresource: {**dict.fromkeys(before), **body[subresource]}}
        return 200, cluster.patch(resource, name, body, namespace, how="apply", subresource=subresource)
    except DsagentError as error:
        return _STATUS.get(type(error), 500), {"message": str(error)}
