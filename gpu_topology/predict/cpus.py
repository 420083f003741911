"""The static CPU manager policy: hints and allocations of exclusive CPUs.

After kubelet 1.34's pkg/kubelet/cm/cpumanager/policy_static.go. Sets of CPUs are integers, a bit a CPU.
"""

from dataclasses import dataclass

from gpu_topology.predict.assignment import distribute_cpus, pack_cpus
from gpu_topology.predict.demand import Demand, Role
from gpu_topology.predict.ends import Refused, Undecided
from gpu_topology.predict.facts import SMT_ALIGNMENT_ERROR, CpuFacts, CpuLayout
from gpu_topology.predict.hints import Hint, make_hints, subsets

FULL_CORES = "full-pcpus-only"
ACROSS_NODES = "distribute-cpus-across-numa"
BY_SOCKET = "align-by-socket"
ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
BY_CACHE = "prefer-align-cpus-by-uncorecache"
KNOWN_OPTIONS = frozenset((FULL_CORES, ACROSS_NODES, BY_SOCKET, ACROSS_CORES, STRICT_RESERVATION, BY_CACHE))
_FEW_NODES = 3  # with no more than these, spreading over nodes cannot fail


@dataclass(frozen=True)
class Cpus:
    """Free CPUs, and those of this pod's init containers; None once it is not known which were taken."""

    free: int | None
    reusable: int = 0


def cpu_hints(facts: CpuFacts, cpus: Cpus, requested: int) -> tuple[Hint, ...]:
    """The sets of NUMA nodes on which `requested` CPUs are free. Raises Undecided."""
    layout, free = facts.layout, _known(cpus)
    in_nodes = layout.in_nodes

    def could_hold(some: int) -> bool:
        return in_nodes[some].bit_count() >= requested

    def holds(some: int) -> bool:
        own = in_nodes[some]
        return not cpus.reusable & ~own and ((free & own).bit_count() + cpus.reusable.bit_count()) >= requested

    hints = make_hints(layout.nodes, could_hold, holds)
    return _prefer_sockets(layout, hints, requested) if BY_SOCKET in facts.options else hints


def allocate_cpus(facts: CpuFacts, cpus: Cpus, demand: Demand, affinity: int | None, later: bool) -> Cpus:
    """What is left after a container has got its CPUs; which ones they are matters only if others come `later`.

    Raises Refused, and Undecided.
    """
    requested, free = demand.cpus, _known(cpus)
    if FULL_CORES in facts.options:
        _check_cores(facts, free, requested)
    allocatable = free | cpus.reusable
    if allocatable.bit_count() < requested:
        raise Refused(f"{requested} CPUs are needed and {allocatable.bit_count()} can be had")
    spreads_far = ACROSS_NODES in facts.options and len(facts.layout.by_node) > _FEW_NODES
    if not later and not spreads_far:
        return cpus
    if BY_CACHE in facts.options:
        return Cpus(None)
    taken = 0
    if affinity is not None:
        aligned = allocatable & _aligned(facts, affinity)
        taken = _take(facts, aligned, min(requested, aligned.bit_count()))
    taken |= _take(facts, allocatable & ~taken, requested - taken.bit_count())
    reusable = cpus.reusable | taken if demand.role is Role.INIT else cpus.reusable & ~taken
    return Cpus(free & ~taken, reusable)


def _take(facts: CpuFacts, available: int, size: int) -> int:
    group = facts.layout.threads if FULL_CORES in facts.options else 1
    if ACROSS_NODES in facts.options and size and not size % group:
        return distribute_cpus(facts.layout, available, size, group)
    return pack_cpus(facts.layout, available, size, whole_cores=ACROSS_CORES not in facts.options)


def _known(cpus: Cpus) -> int:
    if cpus.free is None:
        raise Undecided(f"which CPUs the containers before it get depends on caches ({BY_CACHE})")
    return cpus.free


def _check_cores(facts: CpuFacts, free: int, requested: int) -> None:
    threads = facts.layout.threads
    if requested % threads:
        raise Refused(f"{requested} CPUs are no whole cores of {threads} threads", SMT_ALIGNMENT_ERROR)
    reserved = 0
    for core in facts.layout.by_core.values():
        if core & facts.reserved:
            reserved |= core
    whole = (free & ~reserved).bit_count()
    if requested > whole:
        raise Refused(f"{requested} CPUs are needed and {whole} are free beside reserved cores", SMT_ALIGNMENT_ERROR)


def _aligned(facts: CpuFacts, affinity: int) -> int:
    """The CPUs of these NUMA nodes, or with align-by-socket those of their sockets."""
    if BY_SOCKET not in facts.options:
        return facts.layout.in_nodes[affinity]
    cpus = 0
    for socket in facts.layout.sockets_of(affinity):
        cpus |= facts.layout.by_socket[socket]
    return cpus


def _prefer_sockets(layout: CpuLayout, hints: tuple[Hint, ...], requested: int) -> tuple[Hint, ...]:
    """Prefers too what spans as few sockets as the request needs."""
    nodes_per_socket = len(layout.by_node) // len(layout.by_socket)
    if not nodes_per_socket:
        return hints
    counts = [some.bit_count() for some in subsets(layout.nodes) if layout.in_nodes[some].bit_count() >= requested]
    width = min(counts, default=len(layout.by_node))
    sockets = -(-width // nodes_per_socket)
    return tuple(Hint(hint.mask, hint.preferred or len(layout.sockets_of(hint.mask or 0)) == sockets) for hint in hints)
