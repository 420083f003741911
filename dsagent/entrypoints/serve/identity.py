"""Who asks: by a token, or on the socket by the process's user."""

import hashlib
import os
import struct
import threading
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

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

    def identify(self, token: str) -> Identity | None:
        """Whose token it is, or None if it is nobody's."""


class TokenFile:
    """A YAML file with a list of tokens: `{token, role: pod|administrator, namespace, uid}`; read anew when it
    changes. Raises UsageError if it is not valid when it is first read.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._stamp = (0, 0)
        self._identities: dict[bytes, Identity] = {}
        self._refresh()

    def identify(self, token: str) -> Identity | None:
        """See Verifier.identify."""
        with self._lock:
            self._refresh()
            # Looked up by digest: how long it takes tells nothing of how much of a token is right.
            return self._identities.get(_digest(token))

    def _refresh(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                self._identities = _parse(self._path)
                self._stamp = stamp
        except OSError as error:
            raise UsageError("read", f"the tokens in {self._path}", error.strerror or str(error)) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parse(path: Path) -> dict[bytes, Identity]:
    import yaml  # noqa: PLC0415 - not everyone has a file

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
        found = {}
        for entry in entries:
            role, namespace, uid = entry["role"], str(entry.get("namespace", "")), str(entry.get("uid", ""))
            if role not in ("pod", "administrator") or (role == "pod" and not (namespace and uid)):
                raise ValueError
            found[_digest(str(entry["token"]))] = Identity(role, namespace, uid) if role == "pod" else ADMINISTRATOR
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        # The cause may quote a token.
        raise UsageError(
            "read",
            f"the tokens in {path}",
            "it is not a list of {token, role, namespace, uid}",
            "role is pod or administrator; a pod has its namespace and uid",
        ) from None
    return found


class NoTokens:
    """Knows none."""

    def identify(self, token: str) -> Identity | None:
        """See Verifier.identify."""
        del token
        return None


PEER = "peer:"


def peer_of(credentials: bytes) -> str:
    """The client's address of a Unix socket's peer, from its SO_PEERCRED: `peer:UID`, or `peer:` if it is not of this
    host's own process namespace, as a process in a container is, whose root is not the host's.
    """
    pid, uid, _ = struct.unpack("3i", credentials)
    try:
        own = pid > 0 and os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        own = False
    return f"{PEER}{uid}" if own else PEER


def identify(authorization: str | None, client: str, verifier: Verifier, peers: frozenset[int]) -> Identity | None:
    """Who asks, or None; raises NotPermitted for a token that is not known, whoever sends it."""
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        identity = verifier.identify(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise NotPermitted("ask", "the agent", "the token is not known", "check DSAGENT_TOKEN_FILE")
        return identity
    uid = client.removeprefix(PEER)
    return ADMINISTRATOR if client.startswith(PEER) and uid and int(uid) in peers else None
