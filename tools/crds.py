"""python -m tools.crds: writes the chart's CustomResourceDefinitions from the models of dsagent.api.v1alpha1."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dsagent.api.v1alpha1.dataset import CLUSTER_DATASET, DATASET, ClusterDataset, Dataset
from dsagent.api.v1alpha1.meta import Column, Kind, KubeModel
from dsagent.api.v1alpha1.node_dataset_cache import NODE_DATASET_CACHE, NodeDatasetCache
from dsagent.api.v1alpha1.node_topology import NODE_TOPOLOGY, NodeTopology
from dsagent.api.v1alpha1.rail_decision import RAIL_DECISION, RailDecision
from dsagent.contract import API_GROUP, API_VERSION

FOLDER = Path(__file__).parent.parent / "charts" / "dsagent" / "templates" / "crds"
HEADER = "# Written by `make crds` from dsagent/api/v1alpha1; a change by hand is lost.\n"
MODELS: Mapping[Kind, type[KubeModel]] = {
    DATASET: Dataset,
    CLUSTER_DATASET: ClusterDataset,
    NODE_DATASET_CACHE: NodeDatasetCache,
    NODE_TOPOLOGY: NodeTopology,
    RAIL_DECISION: RailDecision,
}

_TYPE_META = {
    "apiVersion": {"type": "string", "description": "The group and version of this object's schema."},
    "kind": {"type": "string", "description": "What this object is."},
    "metadata": {"type": "object"},
}
# JSON Schema has these, a structural schema has them not, or otherwise.
_DROPPED = {"title", "additionalItems", "exclusiveMaximum", "$defs"}


def definition(kind: Kind, model: type[KubeModel]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    document = model.model_json_schema(by_alias=True)
    schema = _structural(document, document.get("$defs", {}))
    schema["properties"] = {**_TYPE_META, **{k: v for k, v in schema["properties"].items() if k not in _TYPE_META}}
    schema["required"] = [name for name in schema.get("required", ()) if name not in _TYPE_META] or None
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{API_GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
            "labels": {"app.kubernetes.io/part-of": "dsagent"},
        },
        "spec": {
            "group": API_GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["dsagent"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": API_VERSION.partition("/")[2],
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": {key: value for key, value in schema.items() if value is not None}},
                }
            ],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    priority = {"priority": column.priority} if column.priority else {}
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
        **priority,
    }


def _structural(node: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema as Kubernetes takes it: no references, no null, one type at each place."""
    if reference := node.get("$ref"):
        node = {**models[reference.rpartition("/")[2]], **{key: node[key] for key in node if key != "$ref"}}
    if options := node.get("anyOf"):
        (option,) = [one for one in options if one.get("type") != "null"]
        return _structural({**option, **{key: node[key] for key in node if key not in ("anyOf", "default")}}, models)
    found = {key: value for key, value in node.items() if key not in _DROPPED}
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if found.get("type") == "integer":
        found["format"] = "int64"
    if "description" in found:
        found["description"] = " ".join(found["description"].split())
    if "items" in found:
        found["items"] = _structural(found["items"], models)
    if isinstance(values := found.get("additionalProperties"), dict):
        found["additionalProperties"] = _structural(values, models)
    if "properties" in found:
        found["properties"] = {name: _structural(value, models) for name, value in found["properties"].items()}
    return found


def files() -> dict[Path, str]:
    """What is written, by path."""
    return {
        FOLDER / f"{kind.plural}.yaml": HEADER
        + yaml.safe_dump(definition(kind, model), sort_keys=False, width=120, allow_unicode=True)
        for kind, model in MODELS.items()
    }


def main() -> None:
    """Writes them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(Path.cwd())}\n")


if __name__ == "__main__":
    main()
