"""Objects into the view, from wherever they come: a file, a list, a watch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from scheduler_plugin import parse
from scheduler_plugin.errors import BadSetting
from scheduler_plugin.facts import Key
from scheduler_plugin.view import Facts, ObjectKind, View

IGNORED = ("RailDecision",)  # of a snapshot: a pod that is scheduled has the class of its job already


class Known(NamedTuple):
    """An object's facts, and which object it is."""

    kind: ObjectKind
    key: Key
    facts: Facts


def understand(kind: ObjectKind, document: Mapping[str, Any]) -> Known:
    """The facts of an object; raises ValueError."""
    try:
        return _understood(kind, document)
    except parse.NOT_AN_OBJECT as error:
        raise ValueError(f"it is no {kind}: {error!r}") from error


def _understood(kind: ObjectKind, document: Mapping[str, Any]) -> Known:
    key = parse.names_of(document)
    match kind:
        case "Pod":
            return Known(kind, key, parse.pod(document))
        case "Dataset" | "ClusterDataset":
            return Known(kind, key, parse.dataset(document))
        case "NodeDatasetCache":
            return Known(kind, key, parse.cache(document))
        case "NodeTopology":
            return Known(kind, key, parse.topology(document))
        case "Node":
            return Known(kind, key, parse.host(document))
    raise ValueError("its kind does not matter here")


def view_of(path: Path) -> View:
    """The view of a file: a YAML or JSON list of objects, or a List as `kubectl get -o json` prints it.

    Raises BadSetting.
    """
    view, number = View(), 0
    documents = _documents(path)
    documents.reverse()
    while documents:
        document, number = documents.pop(), number + 1  # what has been understood need not be held any longer
        try:
            kind = document["kind"]
            if kind not in IGNORED:
                view.put(*understand(kind, document))
        except (KeyError, TypeError, ValueError) as error:
            raise BadSetting("use", str(path), f"object {number} cannot be understood: {error}") from error
    view.refresh()
    return view


def _documents(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_bytes()
        document = orjson.loads(text) if text.lstrip()[:1] in (b"[", b"{") else yaml.safe_load(text)
    except OSError as error:
        raise BadSetting("read", str(path), error.strerror or str(error)) from error
    except (ValueError, yaml.YAMLError) as error:
        raise BadSetting("read", str(path), f"it is neither JSON nor YAML: {error}") from error
    found = document.get("items") if isinstance(document, dict) else document
    if not isinstance(found, list):
        hint = "write one with scheduler-plugin snapshot"
        raise BadSetting("use", str(path), "it is no list of objects", hint)
    return found
