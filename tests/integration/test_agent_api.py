"""The agent against its own OpenAPI document: whatever is asked, no bug shows, and answers are as it says."""

import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.support import trees
from tests.support.agents import agent
from tests.support.certificates import make_certificates
from tests.support.command import HANG_SECONDS, REPOSITORY
from tests.support.tokens import ADMIN, ONE, write_tokens
from tools.servers import free_port

ENDLESS = "/v1/events"
# A full disk is 507, a storage that does not answer 504: a bug is 500.
NOT_ASKED: list[Any] = [not_a_server_error, positive_data_acceptance, negative_data_rejection]

document = json.loads((REPOSITORY / "docs" / "api" / "openapi.json").read_bytes())
schema = schemathesis.openapi.from_dict(document).exclude(path=ENDLESS)


class Served(NamedTuple):
    """A running agent over TLS, and a source that it may read."""

    address: str
    authority: str
    source: str
    log: Path
    session: requests.Session


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    folder = Path(tempfile.mkdtemp(prefix="dsagent-", dir="/dev/shm"))
    trees.make_files(folder / "data" / "imgs", 5)
    made = make_certificates(folder / "pki")
    address = f"127.0.0.1:{free_port()}"
    tokens = write_tokens(folder / "tokens.yaml", ADMIN, ONE)
    flags: tuple[str, ...] = ("--tcp", address, "--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    try:
        flags = (*flags, "--tokens", str(tokens), "--sources", str(folder / "data"))
        with agent(folder / "root", *flags) as running, requests.Session() as session:
            yield Served(address, str(made.authority), str(folder / "data" / "imgs"), running.log, session)
    finally:
        trees.remove(folder)


def with_real_places(value: Any, source: str) -> Any:
    """A body in which every other source is one that is there."""
    if isinstance(value, dict):
        return {
            name: source
            if name == "source" and isinstance(part, str) and len(part) % 2
            else with_real_places(part, source)
            for name, part in value.items()
        }
    return [with_real_places(part, source) for part in value] if isinstance(value, list) else value


@schema.parametrize()
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_every_answer_is_as_the_document_says(case: schemathesis.Case[Any], served: Served) -> None:
    case.body = with_real_places(case.body, served.source)
    if case.query:
        case.query.pop("wait", None)
    for asker in (ADMIN, ONE):
        response = case.call(
            base_url=f"https://{served.address}",
            verify=served.authority,
            session=served.session,
            headers={"Authorization": f"Bearer {asker.token}"},
            timeout=HANG_SECONDS,
        )
        assert response.status_code != 500, response.content
        case.validate_response(response, excluded_checks=NOT_ASKED)
    assert "Traceback" not in served.log.read_text()


def test_every_route_but_the_endless_one_is_asked(served: Served) -> None:
    asked = {cast("Any", operation).ok().path for operation in schema.get_all_operations()}
    assert asked == document["paths"].keys() - {ENDLESS}


def test_events_are_a_stream_as_the_document_says(served: Served) -> None:
    context = ssl.create_default_context(cafile=served.authority)
    connection = http.client.HTTPSConnection(served.address, context=context, timeout=HANG_SECONDS)
    connection.request("GET", ENDLESS, headers={"Authorization": f"Bearer {ADMIN.token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    (media,) = document["paths"][ENDLESS]["get"]["responses"]["200"]["content"]
    assert answer.headers["content-type"].startswith(media)
    assert answer.readline() == b": dsagent\n"
    connection.close()
