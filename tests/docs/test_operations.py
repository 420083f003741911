"""docs/operations.md and its files: the alerts name metrics that there are, the unit is one that starts an agent."""

import configparser
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsagent.entrypoints.serve.settings import FIELDS, load_agent_settings
from tests.support import trees
from tests.support.agents import SERVE, AgentProcess, agent
from tests.support.command import REPOSITORY

PAGE = REPOSITORY / "docs" / "operations.md"
RULES = REPOSITORY / "docs" / "prometheus-rules.yaml"
UNIT = REPOSITORY / "packaging" / "systemd" / "dsagent.service"
METRIC = re.compile(r"\b(?:dsagent|process)_[a-z_]+")
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[AgentProcess]:
    trees.make_files(tmp_path / "a", 3)
    with agent(tmp_path / "root", "--keep-free", "0B") as running:
        body = {"owner": {"name": "a test"}, "datasets": [{"source": str(tmp_path / "nothing")}]}
        running.ask("PUT", "/v1/tasks/t", body)
        while running.ask("GET", "/v1/tasks/t?wait=5").json["state"] != "failed":
            pass
        yield running


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def labels(served: AgentProcess) -> dict[str, set[str]]:
    """The metrics that an agent has, each with the names of its labels."""
    found: dict[str, set[str]] = {}
    for line in served.ask("GET", "/metrics").body.decode().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            found.setdefault(name.split(" ")[0], set()).update(re.findall(r'(\w+)="', rest))
    return found


@pytest.mark.needs("root")
def test_every_metric_of_the_alerts_and_the_page_is_there(served: AgentProcess) -> None:
    there = labels(served)
    families = there.keys() | {OF_HISTOGRAMS.sub("", name) for name in there}
    for rule in rules():
        for name, matchers in re.findall(r"\b((?:dsagent|process)_[a-z_]+)(\{[^}]*\})?", rule["expr"]):
            assert name in there, rule
            wanted = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - {"job", "instance"}
            assert wanted <= there[name], (rule, there[name])
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            for name in METRIC.findall(line.split("|")[1]):
                assert name in families, line
    of_the_agent = {name for name in families if name.startswith("dsagent_") and not name.endswith("_created")}
    said = set(METRIC.findall(PAGE.read_text()))
    assert {name for name in of_the_agent if OF_HISTOGRAMS.sub("", name) not in said} == set()


def test_every_alert_is_explained() -> None:
    said = re.findall(r"^\| (Dsagent\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert said == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["annotations"]["summary"], rule


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_alerts() -> None:
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser


def test_the_unit_starts_an_agent_with_flags_that_there_are_and_waits_for_its_drain() -> None:
    service = unit()["Service"]
    program, verb, *flags = service["ExecStart"].split()
    assert (Path(program).name, verb) == ("dsagent", "serve")
    shown = subprocess.run([*SERVE, "serve", "--help"], check=True, capture_output=True, text=True).stdout
    for flag in flags[::2]:
        assert flag in shown
    settings = load_agent_settings(dict.fromkeys(FIELDS), {}, None)
    assert int(service["TimeoutStopSec"].removesuffix("s")) > settings.drain + 10
    assert service["KillMode"] == "mixed"
    assert settings.socket == f"/run/{service['RuntimeDirectory']}/agent.sock"
    assert int(service["LimitNOFILE"]) > settings.open_files


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    (tmp_path / "dsagent").write_text("#!/bin/sh\n")
    (tmp_path / "dsagent").chmod(0o755)
    copy = tmp_path / "dsagent.service"
    program = unit()["Service"]["ExecStart"].split()[0]
    copy.write_text(UNIT.read_text().replace(program, str(tmp_path / "dsagent")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], check=False, capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.needs("root", "setpriv")
def test_the_rights_of_the_unit_suffice(tmp_path: Path) -> None:
    """Reading a source of another user that nobody else may read, all of a task's life, and an eviction."""
    trees.make_files(tmp_path / "a", 300)
    for path in (tmp_path / "a", *(tmp_path / "a").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        subprocess.run(["chown", "65534:65534", str(path)], check=True)
    granted = [name.removeprefix("CAP_").lower() for name in unit()["Service"]["CapabilityBoundingSet"].split()]
    prefix = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{','.join(f'+{name}' for name in granted)}"]
    with agent(tmp_path / "root", "--keep-free", "0B", prefix=prefix) as running:
        body = {"owner": {"name": "a test"}, "datasets": [{"source": str(tmp_path / "a")}]}
        assert running.ask("PUT", "/v1/tasks/t", body).status == 200  # by the peer's credentials
        while (info := running.ask("GET", "/v1/tasks/t?wait=5").json)["state"] != "ready":
            assert info["state"] != "failed", info
        assert running.ask("DELETE", "/v1/tasks/t").status == 204
        assert running.ask("POST", "/v1/evict", {"reference": "a"}).status == 200
        assert not list(running.root.glob("versions/*/*/*"))
        assert running.stop() == 0
