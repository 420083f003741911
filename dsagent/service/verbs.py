"""The verbs on a node's cache: one Protocol, and their implementation by this process's own work.

The other implementation is the agent's client. Whoever has a `Verbs` need not know which it is.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsagent.service.diff import Side
    from dsagent.service.leases import ProcessLease
    from dsagent.service.node import Node
    from dsagent.service.origins import CacheRequest
    from dsagent.service.results import (
        CachedInfo,
        CachePlan,
        CacheResult,
        DiffResult,
        DiskInfo,
        EvictResult,
        Finding,
        LeaseInfo,
        VerifyResult,
    )
    from dsagent.service.run import Held

Options = tuple[tuple[str, str], ...]


class Verbs(Protocol):
    """What can be asked of a node's cache. References are `name` or `name@version`; all raise DsagentError."""

    @property
    def root(self) -> str:
        """The cache's folder."""

    def cache(self, request: "CacheRequest") -> "CacheResult":
        """Makes a dataset present, with a lease by time if the request asks for one."""

    def cache_and_hold(self, request: "CacheRequest", owner: str) -> "tuple[CacheResult, ProcessLease]":
        """Makes a dataset present, with a lease of this process."""

    def find_or_cache(self, wanted: str, options: Options, owner: str) -> "Held":
        """What `wanted` means, a reference or a source, made present, with a lease of this process."""

    def plan_cache(self, request: "CacheRequest") -> "CachePlan":
        """What `cache` would do."""

    def ls(self) -> "list[CachedInfo]":
        """The versions that are here, by dataset, newest first."""

    def path(self, reference: str) -> str:
        """Where a version is."""

    def df(self) -> "DiskInfo":
        """How much room there is."""

    def verify(self, reference: str, repair: bool, options: Options) -> "VerifyResult":
        """Re-reads a version; `options` open the source that repairs it."""

    def evict(self, reference: str, force: bool, dry_run: bool) -> "EvictResult":
        """Removes a version, or all of a dataset."""

    def evict_need(self, size: int, dry_run: bool) -> "EvictResult":
        """Removes the longest unused versions until `size` bytes are free."""

    def diff(self, a: "Side", b: "Side") -> "DiffResult":
        """By which files `b` differs from `a`."""

    def doctor(self, rebuild: bool) -> "list[Finding]":
        """Looks at the root; `rebuild` makes its catalog anew before."""

    def add_lease(self, reference: str, owner: str, seconds: float) -> "LeaseInfo":
        """A lease by time."""

    def renew_lease(self, wanted: str, owner: str | None, seconds: float) -> "LeaseInfo":
        """Lets a lease, named by its id or a reference, end `seconds` from now."""

    def release_lease(self, wanted: str, owner: str | None) -> "LeaseInfo":
        """Ends a lease."""

    def leases(self) -> "Sequence[LeaseInfo]":
        """All living leases."""

    def hold(self, reference: str, owner: str) -> "ProcessLease":
        """A lease of this process."""


class LocalVerbs:
    """The services on a node of this process. A command needs one of them, so each is loaded when it is called."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    @property
    def root(self) -> str:
        """See Verbs.root."""
        return str(self._node.root)

    def cache(self, request: "CacheRequest") -> "CacheResult":
        """See Verbs.cache."""
        from dsagent.service.cache import cache  # noqa: PLC0415

        return cache(self._node, request)

    def cache_and_hold(self, request: "CacheRequest", owner: str) -> "tuple[CacheResult, ProcessLease]":
        """See Verbs.cache_and_hold."""
        from dsagent.service.run import cache_and_hold  # noqa: PLC0415

        return cache_and_hold(self._node, request, owner)

    def find_or_cache(self, wanted: str, options: Options, owner: str) -> "Held":
        """See Verbs.find_or_cache."""
        from dsagent.service.run import find_or_cache  # noqa: PLC0415

        return find_or_cache(self._node, wanted, options, owner)

    def plan_cache(self, request: "CacheRequest") -> "CachePlan":
        """See Verbs.plan_cache."""
        from dsagent.service.cache import plan_cache  # noqa: PLC0415

        return plan_cache(self._node, request)

    def ls(self) -> "list[CachedInfo]":
        """See Verbs.ls."""
        from dsagent.service.listing import ls  # noqa: PLC0415

        return ls(self._node)

    def path(self, reference: str) -> str:
        """See Verbs.path."""
        from dsagent.service.listing import path  # noqa: PLC0415

        return path(self._node, reference)

    def df(self) -> "DiskInfo":
        """See Verbs.df."""
        from dsagent.service.listing import df  # noqa: PLC0415

        return df(self._node)

    def verify(self, reference: str, repair: bool, options: Options) -> "VerifyResult":
        """See Verbs.verify."""
        from dsagent.service.verify import verify  # noqa: PLC0415

        return verify(self._node, reference, repair, options)

    def evict(self, reference: str, force: bool, dry_run: bool) -> "EvictResult":
        """See Verbs.evict."""
        from dsagent.service.evict import evict  # noqa: PLC0415

        return evict(self._node, reference, force, dry_run)

    def evict_need(self, size: int, dry_run: bool) -> "EvictResult":
        """See Verbs.evict_need."""
        from dsagent.service.evict import evict_need  # noqa: PLC0415

        return evict_need(self._node, size, dry_run)

    def diff(self, a: "Side", b: "Side") -> "DiffResult":
        """See Verbs.diff."""
        from dsagent.service.diff import diff  # noqa: PLC0415

        return diff(self._node, a, b)

    def doctor(self, rebuild: bool) -> "list[Finding]":
        """See Verbs.doctor."""
        from dsagent.service.doctor import doctor  # noqa: PLC0415

        return doctor(self._node, rebuild)

    def add_lease(self, reference: str, owner: str, seconds: float) -> "LeaseInfo":
        """See Verbs.add_lease."""
        from dsagent.service.leases import add  # noqa: PLC0415

        return add(self._node, reference, owner, seconds)

    def renew_lease(self, wanted: str, owner: str | None, seconds: float) -> "LeaseInfo":
        """See Verbs.renew_lease."""
        from dsagent.service.leases import renew  # noqa: PLC0415

        return renew(self._node, wanted, owner, seconds)

    def release_lease(self, wanted: str, owner: str | None) -> "LeaseInfo":
        """See Verbs.release_lease."""
        from dsagent.service.leases import release  # noqa: PLC0415

        return release(self._node, wanted, owner)

    def leases(self) -> "Sequence[LeaseInfo]":
        """See Verbs.leases."""
        from dsagent.service.leases import list_leases  # noqa: PLC0415

        return list_leases(self._node)

    def hold(self, reference: str, owner: str) -> "ProcessLease":
        """See Verbs.hold."""
        from dsagent.service.leases import hold  # noqa: PLC0415

        return hold(self._node, self._node.find(reference), owner)
