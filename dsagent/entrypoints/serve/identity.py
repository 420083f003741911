"""Who asks: by a token, or on the socket by the process's user."""

import errno
import hashlib
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from dsagent.core.datasets import check_namespace
from dsagent.core.errors import NotPermitted, UsageError

Role = Literal["pod", "administrator"]


class Identity(NamedTuple):
    """Who asks. A pod has its namespace and UID; for an administrator both are empty."""

    role: Role
    namespace: str = ""
    uid: str = ""

    @property
    def is_administrator(self) -> bool:
        """Whether everything is theirs to see and do."""
        return self.role == "administrator"


ADMINISTRATOR = Identity("administrator")


class Verifier(Protocol):
    """Knows tokens."""

    def recall(self, token: str) -> Identity | None:
        """Whose token it is if that is known at once, else None."""

    def identify(self, token: str) -> Identity | None:
        """Whose token it is, or None if it is nobody's; somebody may have to be asked."""


class TokenFile:
    """A YAML file with a list of tokens: `{token, role: pod|administrator, namespace, uid}`; read anew when it
    changes. Raises UsageError if it is not valid when it is first read.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._stamp = (0, 0, 0)
        self._identities: dict[bytes, Identity] = {}
        self._refresh()

    def recall(self, token: str) -> Identity | None:
        """See Verifier.recall."""
        with self._lock:
            self._refresh()
            # Looked up by digest: how long it takes tells nothing of how much of a token is right.
            return self._identities.get(token_digest(token))

    identify = recall

    def _refresh(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                self._identities = _parse(self._path)
                self._stamp = stamp
        except OSError as error:
            raise UsageError("read", f"the tokens in {self._path}", error.strerror or str(error)) from error


def token_digest(token: str) -> bytes:
    """By what a token is remembered."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parse(path: Path) -> dict[bytes, Identity]:
    import yaml  # noqa: PLC0415 - not everyone has a file

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
        found = {}
        for entry in entries:
            role, token = entry["role"], str(entry["token"])
            if role not in ("pod", "administrator") or not token:
                raise ValueError
            found[token_digest(token)] = _pod(entry) if role == "pod" else ADMINISTRATOR
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError, UsageError):
        # The cause may quote a token.
        raise UsageError(
            "read",
            f"the tokens in {path}",
            "it is not a list of {token, role, namespace, uid}",
            "role is pod or administrator; a pod has its namespace and uid",
        ) from None
    return found


def _pod(entry: Mapping[str, object]) -> Identity:
    namespace, uid = check_namespace(str(entry["namespace"])), str(entry["uid"])
    if not uid:
        raise ValueError
    return Identity("pod", namespace, uid)


class NoTokens:
    """Knows none."""

    def recall(self, token: str) -> Identity | None:
        """See Verifier.recall."""
        del token
        return None

    identify = recall


class AnyOf:
    """Knows the tokens that one of two verifiers knows."""

    def __init__(self, first: Verifier, second: Verifier) -> None:
        self._both = (first, second)

    def recall(self, token: str) -> Identity | None:
        """See Verifier.recall."""
        return next((found for one in self._both if (found := one.recall(token))), None)

    def identify(self, token: str) -> Identity | None:
        """See Verifier.identify."""
        return next((found for one in self._both if (found := one.identify(token))), None)


PEER = "peer:"
_SO_PEERPIDFD = 77


def peer_of(connection: socket.socket) -> str:
    """The client's address of a Unix socket's peer: `peer:UID`, or `peer:` if it is not of the agent's own process
    namespace, as a process in a container is, whose root is not the host's.
    """
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        own = pid > 0 and _namespaces(str(pid)) == _namespaces("self") and not _is_gone(connection)
    except OSError:
        own = False
    return f"{PEER}{uid}" if own else PEER


def _namespaces(process: str) -> int:
    """In how many process namespaces a process has a number; users other than its own may ask, too."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((len(line.split()) for line in lines if line.startswith("NSpid:")), 0)


def _is_gone(connection: socket.socket) -> bool:
    """Whether the peer has ended: its number may be another process's by now. Kernels before 6.5 cannot tell."""
    try:
        fd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(fd)


def identify(
    authorization: str | None, client: str, owner: Callable[[str], Identity | None], peers: frozenset[int]
) -> Identity | None:
    """Who asks, or None; raises NotPermitted for a token whose `owner` is not known, whoever sends it."""
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        identity = owner(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise NotPermitted("ask", "the agent", "the token is not known", "check DSAGENT_TOKEN_FILE")
        return identity
    uid = client.removeprefix(PEER)
    return ADMINISTRATOR if client.startswith(PEER) and uid and int(uid) in peers else None
