"""Where an agent is: at an address that somebody gives, or at the one in its root's `locks/agent`."""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dsagent.contract import ENV_AGENT, ENV_CA_FILE, ENV_TOKEN_FILE
from dsagent.core.errors import UsageError

if TYPE_CHECKING:
    import http.client

WRITING_SECONDS = 2.0  # an agent writes its address as soon as it has the lock
POLL_SECONDS = 0.01

_EXAMPLE = "write unix:///run/dsagent/agent.sock or https://HOST:PORT"
_LONGEST_SOCKET = 107  # bytes, of Linux' sockaddr_un


class Address(NamedTuple):
    """A socket's path, or host and port for https. `lock`: the lock of its root, if the address was found there."""

    text: str
    socket: str = ""
    host: str = ""
    port: int = 0
    lock: Path | None = None


class Way(Protocol):
    """How an agent is asked where not by a connection of one's own. `prefix` stands before each path."""

    prefix: str

    def connection(self) -> "http.client.HTTPConnection":
        """A new connection, not yet made."""

    def headers(self) -> dict[str, str]:
        """What shows who asks."""


class Access(NamedTuple):
    """An agent's address and how to ask it: files with the user's token and the authority's certificates; or the way
    there.
    """

    address: Address
    token_file: str = ""
    ca_file: str = ""
    way: Way | None = None


def parse_address(text: str) -> Address:
    """The address in `unix:///PATH` or `https://HOST:PORT`; raises UsageError."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "unix" and rest.startswith("/"):
        if len(os.fsencode(rest)) > _LONGEST_SOCKET:
            raise UsageError("ask", f"the agent at {text}", f"a socket's path has at most {_LONGEST_SOCKET} bytes")
        return Address(text, socket=rest)
    host, colon, port = rest.rstrip("/").rpartition(":")
    if separator and scheme == "https" and colon and host and port.isdecimal() and 0 < int(port) < 1 << 16:
        return Address(text, host=host.strip("[]"), port=int(port))
    raise UsageError("ask", f"the agent at {text!r}", "it is no address of an agent", _EXAMPLE)


def find_agent(root: Path) -> Address | None:
    """The agent that holds a root, or None; raises UsageError if it does not say where it listens."""
    lock = root / "locks" / "agent"
    until = time.monotonic() + WRITING_SECONDS
    while (text := _held(lock)) == b"" and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    if text is None:
        return None
    import orjson  # noqa: PLC0415 - few roots have an agent

    try:
        address = str(orjson.loads(text)["agent"])
    except (ValueError, KeyError, TypeError):
        cause = "an agent holds this root and does not say where it listens"
        raise UsageError("use", str(root), cause, f"name it with --agent or {ENV_AGENT}") from None
    return parse_address(address)._replace(lock=lock)


def is_held(lock: Path) -> bool:
    """Whether an agent holds its root."""
    return _held(lock) is not None


def _held(lock: Path) -> bytes | None:
    """What is in an agent's lock file, or None if nobody holds it. A shared lock does not keep an agent from it long,
    and two that look at once do not take each other for one.
    """
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # of a root that may not be read, its catalog tells
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(fd, 4096)
    else:
        return None
    finally:
        os.close(fd)


def access(address: Address, environ: Mapping[str, str]) -> Access:
    """How this environment's user asks that agent."""
    return Access(address, environ.get(ENV_TOKEN_FILE, ""), environ.get(ENV_CA_FILE, ""))
