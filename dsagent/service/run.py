"""`run`: datasets made present and held for as long as the process that uses them lives."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsagent.contract import ENV_DATASET_PREFIX
from dsagent.core.datasets import is_name
from dsagent.core.errors import UsageError
from dsagent.core.ports import CachedVersion, Location
from dsagent.service.cache import cache_and
from dsagent.service.leases import ProcessLease, hold
from dsagent.service.node import Node, step
from dsagent.service.origins import CacheRequest
from dsagent.service.results import CacheResult


class Held(NamedTuple):
    """A dataset that is present, and this process's lease on it."""

    dataset: str
    path: str
    lease: ProcessLease


def cache_and_hold(node: Node, request: CacheRequest, owner: str) -> tuple[CacheResult, ProcessLease]:
    """Like `cache`, with a lease of this process on the result."""
    return cache_and(node, request, lambda version: hold(node, version, owner))


def find_or_cache(node: Node, wanted: str, options: tuple[tuple[str, str], ...], owner: str) -> Held:
    """What `wanted` means: a dataset that is here, by a reference, else a source that is cached.

    Raises NotCached for a name that is neither, and what `cache` raises.
    """
    if means_cached(wanted, node.has):
        return _hold(node, node.find(wanted), owner)
    result, lease = cache_and_hold(node, CacheRequest(Location(wanted, options)), owner)
    return Held(result.dataset, result.path, lease)


def means_cached(wanted: str, is_here: Callable[[str], bool]) -> bool:
    """Whether what was typed means a cached dataset, be it here or not, rather than a source."""
    name, _, version = wanted.partition("@")
    there = os.path.lexists(wanted)
    if is_name(name) and not ("/" in version or there):
        return True
    return not ("/" in name and there) and is_here(wanted)


def _hold(node: Node, version: CachedVersion, owner: str) -> Held:
    step("lease")
    lease = hold(node, version, owner)
    return Held(str(version.dataset), str(node.data(version)), lease)


def variable(dataset: str) -> str:
    """The environment variable that holds a dataset's path."""
    return ENV_DATASET_PREFIX + dataset.upper().replace(".", "_").replace("-", "_")


def environment(held: Sequence[Held]) -> dict[str, str]:
    """The variables of several datasets; raises UsageError if two would have the same."""
    found: dict[str, Held] = {}
    for one in held:
        other = found.setdefault(variable(one.dataset), one)
        if other.path != one.path:
            raise UsageError(
                "run with",
                f"{other.dataset} and {one.dataset}",
                f"both would be {variable(one.dataset)}",
                "cache one of them under another name with dsctl cache --name",
            )
    return {name: one.path for name, one in found.items()}
