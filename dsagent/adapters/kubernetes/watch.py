"""What there is of one kind of objects, kept up to date by a thread of its own: list, watch, list anew if need be."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, TypeVar

from dsagent.core.cluster import EVERYWHERE, Cluster, Object, Resource, Scope, metadata
from dsagent.core.errors import DsagentError, HistoryGone

log = logging.getLogger("dsagent")

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 10.0

T = TypeVar("T")
Key = tuple[str, str]


class Heard(NamedTuple, Generic[T]):
    """What happened to an object. `synced`, without one: what is known now is what there was at one moment."""

    kind: Literal["added", "modified", "deleted", "synced"]
    object: T | None = None


class Watch(Generic[T]):
    """Follows the objects of a kind and scope, each as `parse` makes it; what raises ValueError, KeyError or TypeError
    there is said and left out. `heard` is called in the watch's thread, after `objects` shows the change, and must not
    take long. The API is asked at least every `seconds`.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        parse: Callable[[Object], T],
        heard: Callable[[Heard[T]], None],
        scope: Scope = EVERYWHERE,
        seconds: float = 300,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._scope = scope
        self._parse = parse
        self._heard = heard
        self._seconds = seconds
        self._lock = threading.Lock()
        self._objects: dict[Key, tuple[str, T]] = {}  # with the uid
        self._answered: float | None = None
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._version = ""
        self._pause = FIRST_PAUSE

    def start(self) -> None:
        """Begins."""
        threading.Thread(target=self._run, name=f"watch {self._resource.plural}", daemon=True).start()

    def stop(self) -> None:
        """Ends it; nothing is heard any more but what is just being said."""
        self._stopped.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits for the first list; whether there was one."""
        return self._synced.wait(seconds)

    @property
    def synced(self) -> bool:
        """Whether all objects have been listed since the start."""
        return self._synced.is_set()

    def silence(self) -> float:
        """Seconds since the API last answered: infinity before the first time."""
        answered = self._answered
        return float("inf") if answered is None else time.monotonic() - answered

    def objects(self) -> list[T]:
        """All that is known."""
        with self._lock:
            return [one for _, one in self._objects.values()]

    def find(self, name: str, namespace: str = "") -> T | None:
        """An object, if it is known."""
        with self._lock:
            return self._objects.get((namespace, name), ("", None))[1]

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except HistoryGone:
                self._version = ""
            except DsagentError as error:
                log.warning("watching %s: %s", self._resource.plural, error)
            except Exception:
                log.exception("watching %s", self._resource.plural)
                self._version = ""
            self._stopped.wait(self._pause * random.uniform(0.5, 1))  # noqa: S311 - it is no secret
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def _follow(self) -> None:
        """Lists unless it is known from where to go on, then watches until an error."""
        if not self._version:
            self._list()
        while not self._stopped.is_set():
            changes = 0
            began = time.monotonic()
            for change in self._cluster.watch(self._resource, self._version, self._scope, seconds=self._seconds):
                self._answered = time.monotonic()
                if self._stopped.is_set():
                    return
                if change is None:
                    continue
                changes += 1
                self._pause = FIRST_PAUSE
                if change.kind == "deleted":
                    self._drop(_key(change.object))
                elif change.kind != "bookmark":
                    self._take(change.object)
                self._version = metadata(change.object)["resourceVersion"]
            self._answered = time.monotonic()
            if not changes and time.monotonic() - began < 1:  # a server that ends it at once is not to be asked so
                return
            self._pause = FIRST_PAUSE

    def _list(self) -> None:
        listing = self._cluster.listing(self._resource, self._scope)
        self._answered = time.monotonic()
        present = {_key(found) for found in listing.items}
        with self._lock:
            gone = [key for key in self._objects if key not in present]
        for key in gone:
            self._drop(key)
        for found in listing.items:
            self._take(found)
        self._version = listing.version
        self._pause = FIRST_PAUSE
        self._synced.set()
        self._heard(Heard("synced"))

    def _take(self, found: Object) -> None:
        key, uid = _key(found), metadata(found).get("uid", "")
        try:
            parsed = self._parse(found)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s %s cannot be understood: %r", self._resource.kind, "/".join(key), error)
            self._drop(key)
            return
        with self._lock:
            before = self._objects.get(key)
        if before is not None and before[0] != uid:  # deleted and made again while nobody looked
            self._drop(key)
            before = None
        with self._lock:
            self._objects[key] = (uid, parsed)
        if before is None or before[1] != parsed:
            self._heard(Heard("added" if before is None else "modified", parsed))

    def _drop(self, key: Key) -> None:
        with self._lock:
            dropped = self._objects.pop(key, None)
        if dropped is not None:
            self._heard(Heard("deleted", dropped[1]))


def _key(found: Object) -> Key:
    names = metadata(found)
    return names.get("namespace", ""), names["name"]
