"""What an agent tells those who watch it: metrics, log, OpenAPI document."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.command import REPOSITORY
from tests.support.tokens import ADMIN, ONE, OTHER, TWO, write_tokens
from tests.support.waiting import until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(running: AgentProcess) -> Samples:
    """All samples of /metrics, which must parse."""
    reply = ADMIN.ask(running, "GET", "/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of(found: Samples, name: str, **labels: str) -> float:
    return found[f"dsagent_{name}", tuple(sorted(labels.items()))]


def lines(running: AgentProcess, text: str) -> list[str]:
    """The lines of the log with a text, as soon as there is one."""
    return until(
        lambda: [line for line in running.log.read_text().splitlines() if text in line], said=running.log.read_text
    )


def test_metrics_follow_what_the_agent_does(scratch: Path) -> None:
    trees.make_files(scratch / "data" / "imgs", 30)
    size = sum(path.stat().st_size for path in (scratch / "data").rglob("*") if path.is_file())
    tokens = write_tokens(scratch / "tokens.yaml", ADMIN, ONE, TWO, OTHER)
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", str(scratch / "data")) as running:
        before = samples(running)
        assert of(before, "ready") == 1
        assert (of(before, "versions"), of(before, "leases"), of(before, "tasks", state="ready")) == (0, 0, 0)
        ready = ONE.put(running, {"source": str(scratch / "data" / "imgs")})
        TWO.put(running, {"source": str(scratch / "data" / "imgs"), "version": ready["version"]})
        OTHER.put(running, {"source": str(scratch / "data" / "missing")})
        after = samples(running)
        assert of(after, "tasks", state="ready") == 2
        assert of(after, "tasks", state="failed") == 1
        assert of(after, "datasets_total", outcome="fetched") == 1
        assert of(after, "datasets_total", outcome="hit") == 1
        assert of(after, "errors_total", type="SourceError") == 1
        assert (of(after, "fetched_bytes_total"), of(after, "fetched_files_total")) == (size, 30)
        assert (of(after, "versions"), of(after, "leases"), of(after, "flights")) == (1, 2, 0)
        assert of(after, "disk_bytes", kind="used") >= size
        assert of(after, "disk_inodes", kind="used") > 30
        assert of(after, "http_requests_total", method="PUT", route="/v1/tasks/{task_id}", status="200") == 3
        assert of(after, "http_request_seconds_count", method="PUT", route="/v1/tasks/{task_id}") == 3
        ADMIN.ask(running, "PATCH", "/v1/limits", {"bandwidth": 1_000_000})
        for asker in (ONE, TWO):
            asker.end(running)
        freed = ADMIN.ask(running, "POST", "/v1/evict", {"reference": "team/imgs"}).json["evicted"][0]["bytes"]
        ADMIN.ask(running, "GET", "/nowhere")
        last = samples(running)
        assert (of(last, "evicted_versions_total"), of(last, "evicted_bytes_total")) == (1, freed)
        assert of(last, "bandwidth_limit_bytes_per_second") == 1_000_000
        assert of(last, "http_requests_total", method="none", route="none", status="404") == 1
        text = ADMIN.ask(running, "GET", "/metrics").body.decode()
        assert "imgs" not in text
        assert ONE.uid not in text
        assert ONE.ask(running, "GET", "/metrics").status == 200, "a scraper needs no administrator's token"


@pytest.mark.needs("root")
@pytest.mark.parametrize("form", ["json", "text"])
def test_the_log_says_which_task_dataset_and_pod_a_line_is_about(scratch: Path, form: str) -> None:
    with agent(scratch / "root", "--log-format", form) as running:
        owner = {"namespace": "team", "name": "trainer-0", "uid": "uid-one"}
        asked = {"owner": owner, "datasets": [{"source": "/nowhere/imgs", "name": "imgs"}]}
        running.ask("PUT", "/v1/tasks/uid-one", asked)
        line = lines(running, "a dataset failed")[0]
        if form == "text":
            assert "task=uid-one" in line
            assert "dataset=team/imgs" in line
            assert "pod=team/trainer-0" in line
            return
        found = json.loads(line)
        assert (found["task"], found["dataset"], found["pod"]) == ("uid-one", "team/imgs", "team/trainer-0")
        assert (found["level"], found["time"][-1]) == ("warning", "Z")
        for other in running.log.read_text().splitlines():
            assert json.loads(other)["message"]


def test_the_openapi_document_in_the_repository_is_the_running_agents(scratch: Path) -> None:
    tokens = write_tokens(scratch / "tokens.yaml", ADMIN)
    with agent(scratch / "root", "--tokens", str(tokens)) as running:
        served = ADMIN.ask(running, "GET", "/openapi.json")
        kept = (REPOSITORY / "docs" / "api" / "openapi.json").read_bytes()
        assert served.body == kept, "write it anew: python -m dsagent.entrypoints.serve.openapi > docs/api/openapi.json"
