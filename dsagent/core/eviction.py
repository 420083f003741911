"""Which versions to evict: whole ones, only unused ones, longest unused first, and only if that is enough."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsagent.core.ports import CachedVersion
from dsagent.core.space import Space


@dataclass(frozen=True)
class Evicted:
    """A version that was removed. `bytes`: what it took on the disk."""

    dataset: str
    version: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """Versions to evict, in order, and what that frees; `enough` says whether the goal is reached."""

    versions: tuple[CachedVersion, ...]
    freed: Space
    enough: bool


def plan(
    missing: Space, candidates: Sequence[CachedVersion], freed_by: Callable[[Sequence[CachedVersion]], Space]
) -> Plan:
    """Takes candidates, longest unused first, until `freed_by` of those taken covers `missing`.

    `freed_by` counts only files all of whose links lie in the versions given. If all candidates together are not
    enough, the plan says so and is not to be carried out.
    """
    taken: list[CachedVersion] = []
    freed = Space()
    for version in sorted(candidates, key=lambda candidate: (candidate.last_used, candidate.id)):
        if freed.covers(missing):
            break
        taken.append(version)
        freed = freed_by(taken)
    return Plan(tuple(taken), freed, enough=freed.covers(missing))
