"""What a pod asks of each of kubelet's managers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from gpu_topology.predict.facts import Container, Pod

CPU = "cpu"
MEMORY = "memory"
HUGE_PAGES = "hugepages-"
_OF_QOS = (CPU, MEMORY)


class Role(Enum):
    """How long a container lives, which decides whether others may use again what it had."""

    INIT = auto()
    SIDECAR = auto()
    APP = auto()


@dataclass(frozen=True)
class Demand:
    """One container's, or with the sums of all containers a pod's."""

    name: str
    role: Role
    cpus: int  # for itself alone; 0 where it shares
    memory: Mapping[str, int]  # bytes by resource; empty where the memory manager does not care
    devices: Mapping[str, int]


def demands_of(pod: Pod, plugin_resources: Callable[[str], object]) -> tuple[Demand, ...]:
    """Each container's demand, in the order in which kubelet allocates."""
    guaranteed = is_guaranteed(pod) and not has_own_resources(pod)
    return tuple(
        Demand(
            name=container.name,
            role=role,
            cpus=_whole_cpus(container) if guaranteed else 0,
            memory=_memory(container) if guaranteed else {},
            devices={name: amount for name, amount in container.limits.items() if plugin_resources(name)},
        )
        for role, container in zip(_roles(pod), pod.in_order, strict=True)
    )


def pod_demand(demands: tuple[Demand, ...]) -> Demand:
    """What the containers ask for together, as the pod scope counts it."""
    if len(demands) == 1:
        return demands[0]
    in_apps = {name for demand in demands if demand.role is Role.APP for name in demand.memory}
    devices = {name for demand in demands for name in demand.devices}
    roles = [demand.role for demand in demands]

    def together(amounts: list[int]) -> int:
        return most_at_once(zip(roles, amounts, strict=True))

    return Demand(
        name="",
        role=Role.APP,
        cpus=together([demand.cpus for demand in demands]),
        memory={name: together([demand.memory.get(name, 0) for demand in demands]) for name in in_apps},
        devices={name: together([demand.devices.get(name, 0) for demand in demands]) for name in devices},
    )


def requests_of(pod: Pod) -> dict[str, int]:
    """What the scheduler counts for the pod: the most that it can have in use at once, and its overhead."""
    alone = len(pod.in_order) == 1
    counted = dict(pod.in_order[0].requests) if alone else _counted(pod)
    counted |= {name: amount for name, amount in pod.requests.items() if _is_for_pods(name)}
    for name, amount in pod.overhead.items():
        counted[name] = counted.get(name, 0) + amount
    return counted


def _counted(pod: Pod) -> dict[str, int]:
    roles = _roles(pod)
    names = {name for container in pod.in_order for name in container.requests}
    return {
        name: most_at_once(
            (role, container.requests.get(name, 0)) for role, container in zip(roles, pod.in_order, strict=True)
        )
        for name in names
    }


def most_at_once(amounts: Iterable[tuple[Role, int]]) -> int:
    """Sidecars and app containers run together; an init container runs beside the sidecars before it."""
    lasting = peak = 0
    for role, amount in amounts:
        if role is Role.INIT:
            peak = max(peak, lasting + amount)
        else:
            lasting += amount
    return max(peak, lasting)


def is_guaranteed(pod: Pod) -> bool:
    """Whether the pod's QoS class is Guaranteed, by its containers' resources."""
    requests = dict.fromkeys(_OF_QOS, 0)
    limits = dict.fromkeys(_OF_QOS, 0)
    for container in pod.in_order:
        for name in _OF_QOS:
            limit = container.limits.get(name, 0)
            if limit <= 0:
                return False
            limits[name] += limit
            requests[name] += container.requests.get(name, 0)
    return requests == limits


def has_own_resources(pod: Pod) -> bool:
    """Whether the pod itself has resources: kubelet's CPU and memory managers leave such a pod alone."""
    return any(_is_for_pods(name) for name in (*pod.requests, *pod.limits))


def _is_for_pods(name: str) -> bool:
    return name in _OF_QOS or name.startswith(HUGE_PAGES)


def _roles(pod: Pod) -> list[Role]:
    early = [Role.SIDECAR if container.is_sidecar else Role.INIT for container in pod.init_containers]
    return early + [Role.APP] * len(pod.containers)


def _whole_cpus(container: Container) -> int:
    whole, rest = divmod(container.requests.get(CPU, 0), 1000)
    return 0 if rest else whole


def _memory(container: Container) -> dict[str, int]:
    return {
        name: amount for name, amount in container.requests.items() if name == MEMORY or name.startswith(HUGE_PAGES)
    }
