"""Connections to the agent, and what their failures mean."""

import http.client
import socket
from collections.abc import Callable

from dsagent.contract import ENV_AGENT, ENV_CA_FILE, ExitCode
from dsagent.entrypoints.init.failure import Failure, Lost
from dsagent.entrypoints.init.settings import Address, bad_setting


def connector(address: Address, ca_file: str | None) -> Callable[[], http.client.HTTPConnection]:
    """What makes a connection, unconnected; raises Failure if the authority's file cannot be used."""
    if address.socket:
        return lambda: _SocketConnection(address.socket)
    import ssl  # noqa: PLC0415 - not needed for the socket

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        cause = f"names {ca_file}, which holds no certificates ({error.strerror or error})"
        raise bad_setting(ENV_CA_FILE, cause, "write the path of a PEM file of the agent's authority") from error
    return lambda: http.client.HTTPSConnection(address.host, address.port, context=context)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("dsagent")
        self._socket_path = path

    def connect(self) -> None:
        """Connects to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


def unreachable(error: Exception, address: Address, seconds: float) -> Lost | Failure:
    """What an exception of a connection means; `seconds` is how long it was given to answer."""
    if isinstance(error, PermissionError):
        text = f"cannot ask the agent at {address.text}: {error.strerror}; run the container as a user who may"
        return Failure(ExitCode.PERMISSION, text)
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        cause = getattr(error, "verify_message", "") or str(error)
        text = f"cannot trust the agent at {address.text}: {cause}; name its authority's file in {ENV_CA_FILE}"
        return Failure(ExitCode.AGENT, text)
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return odd_answer(address, "it does not speak HTTP")
    return Lost(_passing(error, seconds))


def odd_answer(address: Address, cause: str) -> Failure:
    """What is there is no agent, or none that this client knows."""
    text = f"cannot understand the agent at {address.text}: {cause}; see that {ENV_AGENT} names a dsagent"
    return Failure(ExitCode.AGENT, text)


def _passing(error: Exception, seconds: float) -> str:
    """The cause, in words, of what can pass by itself."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.0f} s"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return error.strerror or str(error)
    return "the connection was lost"
