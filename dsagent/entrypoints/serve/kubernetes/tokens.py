"""Whose a pod's token is: TokenReview asks the API server, and says pod, namespace and node."""

import base64
import binascii
import threading
import time
from typing import Any, NamedTuple

import orjson

from dsagent.contract import TOKEN_AUDIENCE
from dsagent.core.cluster import TOKEN_REVIEWS, Cluster
from dsagent.core.errors import ClusterRefused, DsagentError
from dsagent.entrypoints.serve.identity import ADMINISTRATOR, Identity, token_digest
from dsagent.entrypoints.serve.problems import Unavailable

KNOWN_SECONDS = 60.0
UNKNOWN_SECONDS = 10.0
MOST = 10_000
LONGEST = 16_384

_ACCOUNT = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"


class Reviewed(NamedTuple):
    """What a review said, and until when it is believed, in time.monotonic() seconds."""

    identity: Identity | None
    until: float


class TokenReviews:
    """Knows tokens of pods on `node`, and of the `administrator`, a service account written NAMESPACE:NAME.

    What cannot be one of these by its own claims is refused without a question; so are tokens of other nodes' pods.
    """

    def __init__(self, cluster: Cluster, node: str, administrator: str) -> None:
        self._cluster = cluster
        self._node = node
        self._administrator = administrator
        self._audiences = [TOKEN_AUDIENCE, f"{TOKEN_AUDIENCE}/{node}"]
        self._lock = threading.Lock()
        self._reviewed: dict[bytes, Reviewed] = {}

    def recall(self, token: str) -> Identity | None:
        """See Verifier.recall."""
        with self._lock:
            found = self._reviewed.get(token_digest(token))
        return found.identity if found is not None and time.monotonic() < found.until else None

    def identify(self, token: str) -> Identity | None:
        """See Verifier.identify; raises Unavailable while the API server cannot be asked."""
        digest = token_digest(token)
        with self._lock:
            found = self._reviewed.get(digest)
        if found is not None and time.monotonic() < found.until:
            return found.identity
        left = _seconds_left(token, self._audiences)
        if left <= 0:
            return None
        identity = self._review(token)
        self._remember(digest, identity, min(left, KNOWN_SECONDS if identity else UNKNOWN_SECONDS))
        return identity

    def _remember(self, digest: bytes, identity: Identity | None, seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._reviewed) >= MOST:
                self._reviewed = {key: one for key, one in self._reviewed.items() if one.until > now}
            if len(self._reviewed) >= MOST:
                self._reviewed.clear()
            self._reviewed[digest] = Reviewed(identity, now + seconds)

    def _review(self, token: str) -> Identity | None:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": self._audiences},
        }
        try:
            status = self._cluster.create(TOKEN_REVIEWS, body).get("status") or {}
        except ClusterRefused:
            return None
        except DsagentError as error:
            raise Unavailable("ask", "the agent", f"tokens cannot be reviewed now: {error}", "ask again") from error
        return identity_of(status, self._node, self._administrator) if status.get("authenticated") else None


def identity_of(status: Any, node: str, administrator: str) -> Identity | None:
    """Who a review's status says it is: a pod of this node, the administrator, or nobody who may ask here."""
    user, audiences = status.get("user") or {}, status.get("audiences") or ()
    name = str(user.get("username", ""))
    if f"{TOKEN_AUDIENCE}/{node}" in audiences:
        return ADMINISTRATOR if administrator and name == _ACCOUNT + administrator else None
    extra = user.get("extra") or {}
    uid, bound_to = _only(extra, "pod-uid"), _only(extra, "node-name")
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if TOKEN_AUDIENCE not in audiences or not name.startswith(_ACCOUNT) or not account or not uid or bound_to != node:
        return None
    return Identity("pod", namespace, uid)


def _only(extra: Any, name: str) -> str:
    values = list(extra.get(_EXTRA + name) or [])
    return str(values[0]) if len(values) == 1 else ""


def _seconds_left(token: str, audiences: list[str]) -> float:
    """How long a token that looks like one of ours is good; 0 for what is none. The API server judges it."""
    if len(token) > LONGEST:
        return 0
    try:
        _, part, _ = token.split(".")
        claims = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        given = claims["aud"]
        given = [given] if isinstance(given, str) else given
        return float(claims["exp"]) - time.time() if set(given) & set(audiences) else 0
    except (KeyError, TypeError, ValueError, binascii.Error):
        return 0
