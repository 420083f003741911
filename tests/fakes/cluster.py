"""A Kubernetes API server in memory: as much of one as the contract tests ask for."""

import copy
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from dsagent.core.cluster import EVERYWHERE, Change, Listing, Object, PatchKind, Resource, Scope
from dsagent.core.errors import ClusterRefused, ClusterUnreachable, HistoryGone, NoSuchObject, ObjectConflict

Key = tuple[str, str, str]


class _Happened(NamedTuple):
    version: int
    kind: str
    plural: str
    object: dict[str, Any]


class MemoryCluster:
    """Objects in a dict and all that happened to them in a list.

    `down` lets it be unreachable, and ends watches; `forget()` what happened so far; `answers` maps the plural of what
    is only asked, such as token reviews, to who answers; `writes` counts what was changed.
    """

    def __init__(self) -> None:
        self.down = False
        self.writes = 0
        self.lists = 0
        self.answers: dict[str, Any] = {}
        self._objects: dict[Key, dict[str, Any]] = {}
        self._happened: list[_Happened] = []
        self._version = 1
        self._known_since = 0
        self._changed = threading.Condition()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        with self._changed:
            return copy.deepcopy(self._find(resource, name, namespace))

    def listing(self, resource: Resource, scope: Scope = EVERYWHERE) -> Listing:
        with self._changed:
            self._check()
            self.lists += 1
            found = [
                copy.deepcopy(one)
                for (plural, _, _), one in sorted(self._objects.items())
                if plural == resource.plural and _is_in(one, scope)
            ]
            return Listing(found, str(self._version))

    def create(
        self, resource: Resource, body: Object, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Object:
        with self._changed:
            self._check()
            asked = f"{resource.plural}/{subresource}" if subresource else resource.plural
            if asked in self.answers:
                return cast("Object", self.answers[asked](body, namespace, name))
            made = copy.deepcopy(dict(body))
            names = made.setdefault("metadata", {})
            if "name" not in names:
                names["name"] = names.pop("generateName") + uuid.uuid4().hex[:5]
            if resource.namespaced:
                names["namespace"] = namespace
            names["uid"] = str(uuid.uuid4())
            names["generation"] = 1
            key = (resource.plural, namespace if resource.namespaced else "", names["name"])
            if key in self._objects:
                raise ObjectConflict("post", "/".join(key), "already exists")
            if resource.group == "dsagent.io":
                made.pop("status", None)
            return self._keep(key, "ADDED", made)

    def patch(
        self,
        resource: Resource,
        name: str,
        change: Object | Sequence[Object],
        namespace: str = "",
        *,
        how: PatchKind = "merge",
        subresource: str = "",
    ) -> Object:
        with self._changed:
            self._check()
            key = (resource.plural, namespace if resource.namespaced else "", name)
            if how == "apply" and not subresource and key not in self._objects:
                return self.create(resource, cast("Object", change), namespace)
            before = self._find(resource, name, namespace)
            if isinstance(change, Mapping):
                _check_expected(before, change, "/".join(key))
                after = _merged(before, change)
            else:
                after = _edited(before, change)
            if resource.group == "dsagent.io":  # a CRD with the status subresource
                kept = before if subresource != "status" else after
                main = after if subresource != "status" else before
                after = {**main, **({"status": kept["status"]} if "status" in kept else {})}
                if "status" not in kept:
                    after.pop("status", None)
            if after.get("spec") != before.get("spec"):
                after["metadata"]["generation"] = before["metadata"]["generation"] + 1
            if after == before:
                return copy.deepcopy(before)
            if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
                return self._remove(key)
            return self._keep(key, "MODIFIED", after)

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        with self._changed:
            self._check()
            found = self._find(resource, name, namespace)
            if uid and found["metadata"]["uid"] != uid:
                raise ObjectConflict("delete", name, "it has another uid")
            key = (resource.plural, namespace if resource.namespaced else "", name)
            if found["metadata"].get("finalizers"):
                marked = copy.deepcopy(found)
                marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self._keep(key, "MODIFIED", marked)
            else:
                self._remove(key)

    def watch(
        self, resource: Resource, since: str, scope: Scope = EVERYWHERE, *, seconds: float = 300
    ) -> Iterator[Change | None]:
        self._check()
        last, end = int(since), time.monotonic() + seconds
        yield None
        while True:
            with self._changed:
                if last < self._known_since:
                    raise HistoryGone("watch", resource.plural, "too old resource version")
                news = [one for one in self._happened if one.version > last and one.plural == resource.plural]
                if not news and not self.down and time.monotonic() < end:
                    self._changed.wait(end - time.monotonic())
                    continue
                last = self._version
            self._check()
            for one in news:
                if _is_in(one.object, scope):
                    yield Change(cast("Any", one.kind.lower()), copy.deepcopy(one.object))
            if time.monotonic() >= end:
                return

    def set_down(self, down: bool) -> None:
        """Nobody reaches it, or everybody does again."""
        with self._changed:
            self.down = down
            self._changed.notify_all()

    def forget(self) -> None:
        """What happened so far is not known any more."""
        with self._changed:
            self._version += 1
            self._known_since = self._version
            self._happened.clear()
            self._changed.notify_all()

    def _check(self) -> None:
        if self.down:
            raise ClusterUnreachable("ask", "the Kubernetes API", "it is down")

    def _find(self, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
        self._check()
        found = self._objects.get((resource.plural, namespace if resource.namespaced else "", name))
        if found is None:
            raise NoSuchObject("get", f"{resource.plural}/{namespace}/{name}", "not found")
        return found

    def _keep(self, key: Key, kind: str, found: dict[str, Any]) -> Object:
        self._objects[key] = found
        return self._happen(key, kind, found)

    def _remove(self, key: Key) -> Object:
        return self._happen(key, "DELETED", self._objects.pop(key))

    def _happen(self, key: Key, kind: str, found: dict[str, Any]) -> Object:
        self._version += 1
        self.writes += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._happened.append(_Happened(self._version, kind, key[0], copy.deepcopy(found)))
        self._changed.notify_all()
        return copy.deepcopy(found)


def _is_in(found: Object, scope: Scope) -> bool:
    names = found["metadata"]
    if scope.namespace and names.get("namespace") != scope.namespace:
        return False
    labels = names.get("labels", {})
    if any(not _has(labels, one) for one in scope.labels.split(",") if one):
        return False
    return all(_field(found, name) == value for name, value in _pairs(scope.fields))


def _has(labels: dict[str, str], requirement: str) -> bool:
    name, equal, value = requirement.partition("=")
    return labels.get(name) == value if equal else name in labels


def _pairs(selector: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (one.partition("=") for one in selector.split(",") if one)]


def _field(found: Any, name: str) -> str:
    for part in name.split("."):
        found = found.get(part, {})
    return found or ""


def _check_expected(before: Object, change: Object, subject: str) -> None:
    for name in ("resourceVersion", "uid"):
        expected = change.get("metadata", {}).get(name)
        if expected is not None and expected != before["metadata"][name]:
            raise ObjectConflict("patch", subject, "the object has been modified")


def _merged(before: Any, change: Any) -> Any:
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    after = dict(before) if isinstance(before, Mapping) else {}
    for name, value in change.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), value)
    return copy.deepcopy(after)


def _edited(before: dict[str, Any], steps: Sequence[Object]) -> dict[str, Any]:
    after = copy.deepcopy(before)
    for step in steps:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place: Any = after
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        name: Any = int(last) if isinstance(place, list) and last != "-" else last
        if step["op"] == "test":
            if place[name] != step["value"]:
                raise ClusterRefused("patch", step["path"], "it is not what was expected")
        elif step["op"] == "remove":
            del place[name]
        elif isinstance(place, list):
            place.insert(len(place) if name == "-" else name, step["value"])
        else:
            place[name] = step["value"]
    return after
