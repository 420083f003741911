"""Connections to the agent, and what their failures mean."""

import socket

from dsagent.contract import ENV_AGENT, ENV_CA_FILE, ExitCode
from dsagent.entrypoints.init.exchange import Connection
from dsagent.entrypoints.init.failure import Failure, Lost
from dsagent.entrypoints.init.settings import Address, bad_setting


def connection_to(address: Address, ca_file: str | None) -> Connection:
    """A connection that is not open yet; raises Failure if the authority's file cannot be used."""
    return _by_tls(address, ca_file) if address.host else _by_socket(address)


def _by_socket(address: Address) -> Connection:
    def connect(seconds: float) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(seconds)
            made.connect(address.socket)
        except OSError:
            made.close()
            raise
        return made

    return Connection("dsagent", connect)


def _by_tls(address: Address, ca_file: str | None) -> Connection:
    import ssl  # noqa: PLC0415 - not needed for the socket

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        cause = f"names {ca_file}, which holds no certificates ({error.strerror or error})"
        raise bad_setting(ENV_CA_FILE, cause, "write the path of a PEM file of the agent's authority") from error

    def connect(seconds: float) -> socket.socket:
        made = socket.create_connection((address.host, address.port), seconds)
        try:
            return context.wrap_socket(made, server_hostname=address.host)
        except OSError:
            made.close()
            raise

    return Connection(address.text.removeprefix("https://").rstrip("/"), connect)


def unreachable(error: OSError, address: Address, seconds: float) -> Lost | Failure:
    """What an error of a connection means; `seconds` is how long it was given to answer."""
    if isinstance(error, PermissionError):
        text = f"cannot ask the agent at {address.text}: {error.strerror}; run the container as a user who may"
        return Failure(ExitCode.PERMISSION, text)
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        cause = getattr(error, "verify_message", "") or str(error)
        text = f"cannot trust the agent at {address.text}: {cause}; name its authority's file in {ENV_CA_FILE}"
        return Failure(ExitCode.AGENT, text)
    return Lost(_passing(error, seconds))


def odd_answer(address: Address, cause: str) -> Failure:
    """What is there is no agent, or none that this client knows."""
    text = f"cannot understand the agent at {address.text}: {cause}; see that {ENV_AGENT} names a dsagent"
    return Failure(ExitCode.AGENT, text)


def _passing(error: OSError, seconds: float) -> str:
    """The cause, in words, of what can pass by itself."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.0f} s"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, ConnectionError):
        return "the connection was lost"
    return error.strerror or str(error)
