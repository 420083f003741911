"""What terms need of many nodes at once, as numpy arrays with an element a node."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu_topology.predict import Verdict
from scheduler_plugin.facts import Key, PodFacts, Wanted

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class Columns(Protocol):
    """Facts of the nodes of one request, in its order; a node that nobody knows has none."""

    def __len__(self) -> int: ...

    @property
    def rate(self) -> Array:
        """Bytes a second of the slowest part."""

    @property
    def room(self) -> tuple[Array, Array]:
        """Bytes and inodes that the caches could give, evicting all that is unused; infinite where unlimited."""

    def state(self, wanted: Wanted) -> Counts:
        """What each has of a dataset, as State."""

    def present(self, wanted: Wanted) -> Counts:
        """Bytes of a dataset that need not come any more."""

    def placed(self, wanted: Wanted) -> Counts:
        """1 where a dataset takes no more room, being there or promised already."""

    def users(self, key: Key) -> Counts:
        """Pods bound to each that use a dataset."""

    def free_devices(self, resource: str) -> Counts:
        """Devices of a class that a pod could still have."""

    def links(self, resource: str) -> Array:
        """The scores of the best sets of a class's free devices: a column for each size of set."""

    def foretold(self, pod: PodFacts, value: Callable[[Verdict], float]) -> Array:
        """A value of kubelet's verdict on a pod at each."""
