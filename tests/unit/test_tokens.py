"""Whose a pod's token is, by what a TokenReview says."""

import base64
import json
import time
from typing import Any

import pytest

from dsagent.core.cluster import Object
from dsagent.entrypoints.serve.identity import ADMINISTRATOR, Identity
from dsagent.entrypoints.serve.kubernetes.tokens import TokenReviews, identity_of
from dsagent.entrypoints.serve.problems import Unavailable
from tests.fakes.cluster import MemoryCluster

POD = Identity("pod", "research", "uid-1")
ADMIN = "dsagent-system:dsagent-admin"


def status(user: str = "system:serviceaccount:research:default", audience: str = "dsagent", **extra: str) -> Any:
    claims = {"pod-uid": "uid-1", "pod-name": "train", "node-name": "n1"} | extra
    named = {f"authentication.kubernetes.io/{name}": [value] for name, value in claims.items() if value}
    return {"authenticated": True, "user": {"username": user, "extra": named}, "audiences": [audience]}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (status(), POD),
        (status(**{"node-name": "n2"}), None),  # a pod of another node
        (status(**{"node-name": ""}), None),
        (status(**{"pod-uid": ""}), None),  # bound to no pod
        (status(audience="https://kubernetes.default.svc"), None),
        (status(user="somebody"), None),
        (status(user=f"system:serviceaccount:{ADMIN}"), POD._replace(namespace="dsagent-system")),
        (status(user=f"system:serviceaccount:{ADMIN}", audience="dsagent/n1"), ADMINISTRATOR),
        (status(user=f"system:serviceaccount:{ADMIN}", audience="dsagent/n2"), None),
        (status(audience="dsagent/n1"), None),  # whoever else asks for that audience
        ({}, None),
    ],
)
def test_who_a_review_says_it_is(said: Any, expected: Identity | None) -> None:
    assert identity_of(said, "n1", ADMIN) == expected


def test_without_an_administrator_nobody_is_one() -> None:
    said = status(user=f"system:serviceaccount:{ADMIN}", audience="dsagent/n1")
    assert identity_of(said, "n1", "") is None


def token(seconds: float = 600, audience: object = ("dsagent",)) -> str:
    claims = json.dumps({"aud": audience, "exp": time.time() + seconds}).encode()
    return f"head.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


class Asked:
    """A cluster whose reviews are counted."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.cluster.answers["tokenreviews"] = self.answer
        self.reviews = TokenReviews(self.cluster, "n1", ADMIN)
        self.times = 0
        self.said: Any = status()

    def answer(self, body: Object, _namespace: str, _name: str) -> Object:
        self.times += 1
        assert body["spec"]["audiences"] == ["dsagent", "dsagent/n1"]
        return {"status": self.said}


def test_a_token_is_reviewed_once_for_a_while() -> None:
    asked = Asked()
    given = token()
    assert asked.reviews.recall(given) is None
    assert [asked.reviews.identify(given) for _ in range(3)] == [POD] * 3
    assert asked.reviews.recall(given) == POD
    assert asked.times == 1


def test_who_is_refused_is_not_asked_about_again_at_once() -> None:
    asked = Asked()
    asked.said = {"authenticated": False}
    given = token()
    assert [asked.reviews.identify(given) for _ in range(3)] == [None] * 3
    assert asked.times == 1


@pytest.mark.parametrize(
    "given",
    ["", "opaque", "a.b.c", token(-1), token(audience="https://kubernetes.default.svc"), "x" * 100_000, token() + ".x"],
    ids=["empty", "opaque", "not base64", "expired", "of another audience", "too long", "of four parts"],
)
def test_what_cannot_be_ours_costs_no_review(given: str) -> None:
    asked = Asked()
    assert asked.reviews.identify(given) is None
    assert asked.times == 0


def test_while_the_api_is_away_nobody_new_is_known() -> None:
    asked = Asked()
    known, new = token(), token(seconds=700)
    assert asked.reviews.identify(known) == POD
    asked.cluster.set_down(True)
    assert asked.reviews.identify(known) == POD
    with pytest.raises(Unavailable):
        asked.reviews.identify(new)
