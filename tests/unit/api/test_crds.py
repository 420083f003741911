"""The chart's CustomResourceDefinitions are those of the models, and structural."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dsagent.api.v1alpha1.dataset import Dataset
from tools.crds import FOLDER, MODELS, definition, files


def test_the_checked_in_definitions_are_what_make_crds_writes() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))} == files()


def schemas(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(child := node.get(key), dict):
            yield from schemas(child, f"{path}.{key}")


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.short)
def test_schemas_are_structural_and_every_field_is_described(kind: Any) -> None:
    (version,) = definition(kind, MODELS[kind])["spec"]["versions"]
    found = dict(schemas(version["schema"]["openAPIV3Schema"]))
    assert all("type" in schema for schema in found.values())
    assert not [path for path, schema in found.items() if {"$ref", "anyOf", "title", "const"} & schema.keys()]
    undescribed = [path for path, schema in found.items() if "description" not in schema]
    assert [path for path in undescribed if not path.endswith((".metadata", ".items", ".additionalProperties"))] == []


def test_templates_have_nothing_that_helm_would_take_for_its_own() -> None:
    assert not [path for path, text in files().items() if "{{" in text]


def test_models_refuse_what_the_definitions_refuse() -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        Dataset.model_validate({"metadata": {"name": "x"}, "spec": {"source": "relative/path"}})
