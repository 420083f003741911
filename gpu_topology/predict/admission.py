"""Whether kubelet would admit a pod: hints, merge and allocation of every container, then what the node has left.

After kubelet 1.34's topologymanager (scopes) and lifecycle/predicate.go, in the order in which kubelet asks them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpu_topology.predict.cpus import KNOWN_OPTIONS, Cpus, allocate_cpus, cpu_hints
from gpu_topology.predict.demand import CPU, MEMORY, Demand, demands_of, pod_demand, requests_of
from gpu_topology.predict.devices import Pool, allocate_devices, device_hints, make_pool
from gpu_topology.predict.ends import Refused, Undecided
from gpu_topology.predict.facts import (
    ADMIT,
    OUT_OF,
    TOPOLOGY_AFFINITY_ERROR,
    UNKNOWN,
    Affinity,
    Node,
    Options,
    Pod,
    Policy,
    Scope,
    Verdict,
)
from gpu_topology.predict.hints import ANYWHERE, NOWHERE, Hint, Hints, mask_of, nodes_of
from gpu_topology.predict.memory import Memory, allocate_memory, check_known, make_memory, memory_hints
from gpu_topology.predict.merge import merge

MOST_WAYS = 500  # of handing out devices that are looked at before it is called unknown
_FIRST = ("pods", CPU, MEMORY, "ephemeral-storage")
_NO_HINT = Hint(None, preferred=False)  # what the policy none gives every container


@dataclass(frozen=True)
class State:
    """What is left on the node at one point of the admission."""

    cpus: Cpus
    memory: Memory | None
    pools: Mapping[str, Pool]


@dataclass(frozen=True)
class End:
    """One way in which the admission can go."""

    reason: str
    why: str
    affinities: tuple[Hint, ...] = ()


def predict(policy: Policy, options: Options, scope: Scope, pod: Pod, node: Node) -> Verdict:
    """What kubelet 1.34 would say of a pod that is new to it; UNKNOWN where that cannot be known, never an error."""
    admission = _Admission(policy, options, scope, pod, node)
    try:
        admission.check_facts()
        return admission.verdict()
    except Undecided as undecided:
        return Verdict(UNKNOWN, str(undecided))


class _Admission:
    """One pod at one node."""

    def __init__(self, policy: Policy, options: Options, scope: Scope, pod: Pod, node: Node) -> None:
        self.policy = policy
        self.options = options
        self.scope = scope
        self.pod = pod
        self.node = node
        self.mask = mask_of(node.numa_nodes)
        self.demands = demands_of(pod, node.devices.__contains__)
        self.ways = 0

    def check_facts(self) -> None:
        """Raises Undecided if something that the pod needs is not known, or kubelet would not run like this."""
        node, options = self.node, self.options
        if self.policy is not Policy.NONE:
            if len(node.numa_nodes) > options.max_allowable_numa_nodes:
                raise Undecided(f"kubelet does not start on more than {options.max_allowable_numa_nodes} NUMA nodes")
            if options.prefer_closest_numa_nodes and any(
                other not in node.distances.get(one, {}) for one in node.numa_nodes for other in node.numa_nodes
            ):
                raise Undecided("the distances between NUMA nodes are not known")
        for subject, reason in node.unknown.items():
            if any(_needs(demand, subject) for demand in self.demands):
                raise Undecided(f"{subject} is not known: {reason}")
        if node.cpus and any(demand.cpus for demand in self.demands) and node.cpus.options - KNOWN_OPTIONS:
            strange = ", ".join(sorted(node.cpus.options - KNOWN_OPTIONS))
            raise Undecided(f"the CPU manager's option {strange} is not known here")

    def verdict(self) -> Verdict:
        """What all ways lead to. Raises Undecided."""
        node = self.node
        memory = make_memory(node.memory) if node.memory is not None else None
        if memory:
            for demand in self.demands:
                check_known(memory, demand.memory)
        wanted = {name for demand in self.demands for name in demand.devices}
        pools = {name: make_pool(name, node.devices[name]) for name in wanted}
        state = State(Cpus(node.cpus.free if node.cpus else 0), memory, pools)
        ends: list[End] = []
        for end in self._ends(state):
            ends.append(end)
            if end.reason != ends[0].reason:
                either = " or ".join(sorted((ends[0].reason, end.reason)))
                raise Undecided(f"it depends on which devices the containers get: {either}")
        affinities = tuple(_common(hints) for hints in zip(*(end.affinities for end in ends), strict=True))
        names = [demand.name for demand in self.demands]
        return Verdict(ends[0].reason, ends[0].why, dict(zip(names, affinities, strict=False)))

    def _ends(self, state: State) -> Iterator[End]:
        """Every way the admission can go; two that differ are enough to know that it is unknown."""
        hint: Hint | None = _NO_HINT
        if self.policy is not Policy.NONE:
            hint = None
            if self.scope is Scope.POD:
                try:
                    hint = self._merged(state, pod_demand(self.demands))
                except Refused as refused:
                    yield End(refused.reason, f"the pod: {refused.why}")
                    return
        yield from self._from(state, 0, hint, ())

    def _from(self, state: State, index: int, given: Hint | None, before: tuple[Hint, ...]) -> Iterator[End]:
        self.ways += 1
        if self.ways > MOST_WAYS:
            raise Undecided("there are too many ways to hand out the devices")
        if index == len(self.demands):
            yield self._fit(state, before)
            return
        demand = self.demands[index]
        try:
            hint = given or self._merged(state, demand)
            after = list(self._allocated(state, index, hint))
        except Refused as refused:
            yield End(refused.reason, f"container {demand.name}: {refused.why}")
            return
        for left in after:
            yield from self._from(left, index + 1, given, (*before, hint))

    def _merged(self, state: State, demand: Demand) -> Hint:
        """The Topology Manager's choice for a container or a pod. Raises Refused, and Undecided."""
        hints = self._hints(state, demand)
        known = [ANYWHERE if of is None else of or NOWHERE for of in hints.values()]
        best = merge(self.policy, self.options, self.mask, self.node.distances, known)
        if self.policy is not Policy.BEST_EFFORT and not best.preferred:
            places = "; ".join(f"{name} {_places(of)}" for name, of in hints.items() if of is not None)
            raise Refused(f"no NUMA nodes that all prefer: {places}", TOPOLOGY_AFFINITY_ERROR)
        return best

    def _hints(self, state: State, demand: Demand) -> dict[str, Hints]:
        hints: dict[str, Hints] = {
            name: device_hints(state.pools[name], self.mask, amount) for name, amount in demand.devices.items()
        }
        if self.node.cpus and demand.cpus:
            hints[CPU] = cpu_hints(self.node.cpus, state.cpus, demand.cpus)
        if state.memory and demand.memory:
            hints[MEMORY] = memory_hints(state.memory, demand.memory) or None
        return hints

    def _allocated(self, state: State, index: int, hint: Hint) -> Iterator[State]:
        """What may be left after a container got what it asked for. Raises Refused, and Undecided."""
        demand, later = self.demands[index], self.demands[index + 1 :]
        ways = [state.pools]
        for name, amount in demand.devices.items():
            ways = [
                {**pools, name: pool}
                for pools in ways
                for pool in _distinct(
                    allocate_devices(pools[name], amount, demand.role, hint.mask),
                    matters=any(name in other.devices for other in later),
                )
            ]
        cpus, memory = state.cpus, state.memory
        if self.node.cpus and demand.cpus:
            more = any(other.cpus for other in later)
            cpus = allocate_cpus(self.node.cpus, cpus, demand, hint.mask, later=more)
        if memory and demand.memory:
            memory = allocate_memory(memory, demand.memory, demand.role, hint)
        for pools in ways:
            yield State(cpus, memory, pools)

    def _fit(self, state: State, hints: tuple[Hint, ...]) -> End:
        """The scheduler's own check, which kubelet repeats after it has allocated everything."""
        node = self.node
        room = dict(node.allocatable)
        for name, pool in state.pools.items():  # kubelet corrects what the node's status says of devices
            room[name] = max(room.get(name, 0), pool.allocated)
        wanted = {"pods": 1} | requests_of(self.pod)
        for name in sorted(wanted, key=_rank):
            amount = wanted[name]
            used = node.requested.get(name, 0)
            if amount and name in room and used + amount > room[name]:
                why = f"the pod asks for {amount} of {name}, {used} of {room[name]} are asked for by others"
                return End(OUT_OF + name, why)
        return End(ADMIT, self._praise(hints), hints)

    def _praise(self, hints: tuple[Hint, ...]) -> str:
        if self.policy is Policy.NONE:
            return "everything it asks for can be allocated, and the policy none does not ask where"
        wide = [demand.name for demand, hint in zip(self.demands, hints, strict=True) if not hint.preferred]
        if wide:
            return f"everything can be allocated, though not in the preferred place for {', '.join(wide)}"
        return "everything can be allocated on the NUMA nodes that are preferred"


def _distinct(pools: Iterable[Pool], *, matters: bool) -> list[Pool]:
    """Each once; or only the first, if no container after this one asks for the resource."""
    return list(dict.fromkeys(pools)) if matters else [next(iter(pools))]


def _common(hints: tuple[Hint, ...]) -> Affinity | None:
    first = hints[0]
    if any(hint != first for hint in hints):
        return None
    return Affinity(nodes_of(first.mask or 0), first.preferred)


def _rank(resource: str) -> tuple[int, str]:
    """Kubelet names the first that does not fit, in this order."""
    return (_FIRST.index(resource) if resource in _FIRST else len(_FIRST)), resource


def _needs(demand: Demand, subject: str) -> bool:
    if subject == CPU:
        return demand.cpus > 0
    return bool(demand.memory) if subject == MEMORY else subject in demand.devices


def _places(hints: tuple[Hint, ...]) -> str:
    preferred = [" and ".join(map(str, nodes_of(hint.mask or 0))) for hint in hints if hint.preferred]
    if preferred:
        return f"fits on {' or on '.join(preferred)}"
    return "fits only on more nodes than it would have to use" if hints else "does not fit"
