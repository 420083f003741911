"""Where the API server is and how this process shows who it is: in a pod by its service account, else by a kubeconfig.

In a pod nothing but the standard library is loaded: the kubernetes package brings classes for all of the API with it.
"""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from dsagent.core.errors import UsageError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ENV_HOST = "KUBERNETES_SERVICE_HOST"
ENV_PORT = "KUBERNETES_SERVICE_PORT"
ENV_KUBECONFIG = "KUBECONFIG"


class ApiServer(NamedTuple):
    """An API server. `prefix` stands before each path; `authorization` gives the header's present value, or nothing
    where the certificate says who asks; `server_name` is the certificate's, if it is not the host; `namespace` is the
    one of this pod or of the kubeconfig's context.
    """

    host: str
    port: int
    prefix: str
    context: ssl.SSLContext | None
    authorization: Callable[[], str]
    server_name: str
    namespace: str


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in a container of a pod."""
    return bool(environ.get(ENV_HOST))


def api_server(environ: Mapping[str, str], kubeconfig: str = "", context: str = "") -> ApiServer:
    """The one of this pod, unless a kubeconfig is given or the variable names one; raises UsageError."""
    if not (kubeconfig or context or environ.get(ENV_KUBECONFIG)) and in_pod(environ):
        return _of_this_pod(environ)
    return _of_kubeconfig(kubeconfig, context)


def _of_this_pod(environ: Mapping[str, str]) -> ApiServer:
    token = SERVICE_ACCOUNT / "token"

    def authorization() -> str:  # read for each request: kubelet renews it
        return f"Bearer {_read(token)}"

    authorization()
    try:
        trusted = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except OSError as error:
        raise _unusable(str(SERVICE_ACCOUNT / "ca.crt"), error.strerror or str(error)) from error
    host, port = environ[ENV_HOST], int(environ.get(ENV_PORT, "443"))
    return ApiServer(host, port, "", trusted, authorization, "", _read(SERVICE_ACCOUNT / "namespace"))


def _of_kubeconfig(file: str, context: str) -> ApiServer:
    try:
        from kubernetes.client import Configuration  # noqa: PLC0415 - optional, and slow to import
        from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'dsagent[kubernetes]'"
        raise UsageError("ask", "the Kubernetes API", "its packages are not installed", hint) from error
    found = Configuration()
    found.proxy = None
    try:
        load_kube_config(file or None, context or None, found, persist_config=False)  # type: ignore[no-untyped-call]
        contexts, active = list_kube_config_contexts(file or None)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, TypeError, ValueError) as error:
        raise _unusable(file or "the kubeconfig", str(error)) from error
    chosen = next((one for one in contexts if one["name"] == context), active)
    address = urlsplit(found.host)
    port = address.port or (443 if address.scheme == "https" else 80)

    def authorization() -> str:
        return found.get_api_key_with_prefix("BearerToken") or found.get_api_key_with_prefix("authorization") or ""

    return ApiServer(
        address.hostname or "",
        port,
        address.path.rstrip("/"),
        _trusted(found) if address.scheme == "https" else None,
        authorization,
        found.tls_server_name or "",
        chosen["context"].get("namespace", "default"),
    )


def _trusted(found: "Configuration") -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=found.ssl_ca_cert or None)
        if not found.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if found.cert_file:
            context.load_cert_chain(found.cert_file, found.key_file)
    except OSError as error:
        raise _unusable("the certificates of the kubeconfig", error.strerror or str(error)) from error
    return context


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(str(path), getattr(error, "strerror", None) or str(error)) from error


def _unusable(subject: str, cause: str) -> UsageError:
    return UsageError("use", subject, cause, f"see {ENV_KUBECONFIG}, or the service account of this pod")
