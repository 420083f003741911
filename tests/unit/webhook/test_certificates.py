"""The certificate that the webhook's replicas make and share."""

import base64
import http.client
import ssl
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dsagent.core.cluster import SECRETS
from dsagent.entrypoints.self_signed import Pair, new_pair
from dsagent.entrypoints.webhook import certificates
from dsagent.entrypoints.webhook.certificates import (
    CONFIGURATIONS,
    RENEWED_BEFORE,
    VALID,
    Shared,
    follow,
    is_good,
)
from dsagent.entrypoints.webhook.server import App, Server
from tests.fakes.cluster import MemoryCluster

NAME = "dsagent-webhook.dsagent-system.svc"
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def chart() -> MemoryCluster:
    """What the chart makes: an empty Secret, and a configuration that trusts nobody."""
    found = MemoryCluster()
    found.create(SECRETS, {"metadata": {"name": "certificate"}}, "dsagent-system")
    hooks = [{"name": "datasets.dsagent.io", "clientConfig": {"service": {}}}]
    found.create(CONFIGURATIONS, {"metadata": {"name": "webhook"}, "webhooks": hooks})
    return found


def replica(cluster: MemoryCluster) -> Shared:
    return Shared(cluster, "dsagent-system", "certificate", "webhook", (NAME,))


def trusted(cluster: MemoryCluster) -> bytes:
    (webhook,) = cluster.get(CONFIGURATIONS, "webhook")["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


def test_replicas_share_one_certificate_that_api_servers_trust() -> None:
    cluster = chart()
    first, second = replica(cluster).look(NOW), replica(cluster).look(NOW)
    assert first == second
    assert trusted(cluster) == first.certificate
    writes = cluster.writes
    assert replica(cluster).look(NOW + VALID - RENEWED_BEFORE - timedelta(hours=1)) == first
    assert cluster.writes == writes


def test_a_new_certificate_is_trusted_beside_the_one_before() -> None:
    cluster = chart()
    first = replica(cluster).look(NOW)
    second = replica(cluster).look(NOW + VALID - RENEWED_BEFORE)
    assert second != first
    assert trusted(cluster) == second.certificate + first.certificate


def test_a_replica_that_loses_the_race_takes_the_winners() -> None:
    cluster = chart()
    other = new_pair((NAME,), NOW, VALID)
    look = replica(cluster)
    get = cluster.get
    raced: list[bool] = []

    def racing(*args: Any) -> Any:
        found = get(*args)
        if args[0] is SECRETS and not raced:
            raced.append(True)
            data = {"tls.crt": other.certificate, "tls.key": other.key}
            encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
            cluster.patch(SECRETS, "certificate", {"data": encoded}, "dsagent-system")
        return found

    cluster.get = racing  # type: ignore[method-assign, assignment]
    assert look.look(NOW) == other


@pytest.mark.parametrize(
    ("names", "at", "good"),
    [
        ((NAME,), NOW, True),
        (("other.svc",), NOW, False),
        ((NAME,), NOW - timedelta(days=1), False),
        ((NAME,), NOW + VALID - RENEWED_BEFORE, False),
    ],
)
def test_when_a_certificate_is_good(names: tuple[str, ...], at: datetime, *, good: bool) -> None:
    assert is_good(new_pair((NAME,), NOW, VALID).certificate, names, at) == good
    assert not is_good(b"nothing", names, at)


def test_a_new_certificate_is_served_one_look_after_it_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0)
    old, new = Pair(b"old", b"k"), Pair(b"new", b"k")
    stopped = threading.Event()
    looked: list[str] = []

    def look(_now: datetime) -> Pair:
        looked.append("look")
        if len(looked) > 4:
            stopped.set()
        return new

    def serve(pair: Pair) -> None:
        looked.append(pair.certificate.decode())

    follow(look, old, serve, stopped)
    assert looked[:3] == ["look", "new", "look"]
    assert looked.count("new") == 1


def test_the_server_changes_its_certificate_while_it_serves() -> None:
    first, second = (new_pair(("localhost",), datetime.now(UTC), VALID) for _ in range(2))
    server = Server(App(lambda review: review), "127.0.0.1", 0, first)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        port = server.port()
        assert shown(port, first) == (200, b'{"uid":1}')
        server.serve_with(second)
        assert shown(port, second) == (200, b'{"uid":1}')
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(port, first)
    finally:
        server.stop()
        thread.join()


def shown(port: int, pair: Pair) -> tuple[int, bytes]:
    """What a server answers that is trusted for this certificate only."""
    context = ssl.create_default_context(cadata=pair.certificate.decode())
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=30)
    try:
        connection.request("POST", "/inject", b'{"uid": 1}')
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
