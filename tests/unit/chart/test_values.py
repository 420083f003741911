"""The chart's README, its schema and what else repeats a value say the same as values.yaml."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dsagent import __version__
from dsagent.contract import SOCKET_IN_ROOT

CHART = Path(__file__).parents[3] / "charts" / "dsagent"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
_ROW = re.compile(r"^\| `([^`]+)` \| (?:`([^`]*)`)? \|", re.MULTILINE)


def leaves(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that can be set, with its default; resources and selectors are one each."""
    for key, value in node.items():
        if isinstance(value, dict) and value and key not in ("resources", "nodeSelector"):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def test_the_readme_has_every_value_with_its_default() -> None:
    table = dict(_ROW.findall((CHART / "README.md").read_text()))
    shown = {
        path: value if isinstance(value, str) else json.dumps(value, separators=(", ", ": "))
        for path, value in leaves(VALUES)
    }
    assert table == shown


def allowed(schema: dict[str, Any], whole: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, child in schema["properties"].items():
        found = whole["definitions"][child["$ref"].rpartition("/")[2]] if "$ref" in child else child
        if "properties" in found:
            yield from allowed(found, whole, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(allowed(schema, schema)) == {path for path, _ in leaves(VALUES)} | {"global"}  # which is Helm's own


def test_the_chart_is_of_this_version_and_puts_the_socket_where_pods_look() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    agent = (CHART / "templates" / "agent.yaml").read_text()
    assert f'printf "%s/{SOCKET_IN_ROOT}" .Values.hostPath' in agent
