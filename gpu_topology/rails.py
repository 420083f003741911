"""Rails: which GPU belongs to which RoCE subnet, and which network function is its own. No I/O."""

import re
from collections.abc import Iterable, Mapping

from gpu_topology.api import Device, Gpu, Link, Machine, Nic, Rail, Vf
from gpu_topology.errors import UsageError

DEFAULT_RESOURCE = "dsagent.io/gpu-roce{n}"
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_resource(pattern: str) -> None:
    """Raises UsageError unless the pattern makes names of extended resources, one a number."""
    made = pattern.replace("{n}", "1")
    if "{n}" in pattern and is_resource(made):
        return
    cause = "it has to be DOMAIN/NAME with {n} for the rail's number, outside kubernetes.io"
    raise UsageError("name resources by", repr(pattern), cause, f"for example {DEFAULT_RESOURCE}")


def is_resource(name: str) -> bool:
    """Whether a plugin may name a resource so: DOMAIN/NAME."""
    return _RESOURCE.fullmatch(name) is not None and "kubernetes.io/" not in name


def near_gpus(
    machine: Machine, links: Mapping[str, Mapping[str, Link]], pairs: Mapping[str, str]
) -> Mapping[str, tuple[Gpu, ...]]:
    """For each RoCE card with a subnet, by PCI address, the GPUs that are its own.

    A GPU belongs to the nearest card; of several equally near to that which has fewest yet. A GPU that is paired
    already (`pairs`: its PCI address to its function's) stays with that card.
    """
    owner = {function.pci: nic for nic in machine.nics for function in nic.functions}
    near: dict[str, list[Gpu]] = {nic.pci: [] for nic in machine.nics if nic.roce and nic.subnet}
    waiting: list[tuple[int, Gpu, list[Nic]]] = []
    for gpu in machine.gpus:
        nic = owner.get(pairs.get(gpu.pci, ""))
        if nic is not None and nic.subnet:
            near.setdefault(nic.pci, []).append(gpu)
        elif gpu.pci not in pairs:
            choices = _nearest(machine, links, gpu)
            waiting.append((len(choices), gpu, choices))
    for _, gpu, choices in sorted(waiting, key=lambda entry: (entry[0], entry[1].index)):
        if choices:
            least = min(choices, key=lambda nic: (len(near[nic.pci]), nic.pci))
            near[least.pci].append(gpu)
    return {pci: tuple(sorted(gpus, key=lambda gpu: gpu.index)) for pci, gpus in near.items()}


def _nearest(machine: Machine, links: Mapping[str, Mapping[str, Link]], gpu: Gpu) -> list[Nic]:
    """The RoCE cards that no other is nearer than; between NUMA nodes their distance decides."""
    distance = {node.id: node.distances for node in machine.numa_nodes}.get(gpu.numa_node, {})
    far = max(distance.values(), default=0) + 1

    def key(nic: Nic) -> tuple[int, int]:
        return (-links[gpu.id][nic.name].relation, distance.get(nic.numa_node, far))

    cards = [nic for nic in machine.nics if nic.roce and nic.subnet]
    best = min(map(key, cards), default=None)
    return [nic for nic in cards if key(nic) == best]


def pair(near: Mapping[str, tuple[Gpu, ...]], nics: Iterable[Nic], known: Mapping[str, str]) -> Mapping[str, str]:
    """`known` with a network function for each GPU that has none: PCI address to PCI address.

    A card's GPUs get its virtual functions in order, which nobody ever had. A card without any, and with one GPU,
    is that GPU's as a whole. A GPU for which nothing is left gets none.
    """
    pairs = dict(known)
    taken = set(known.values())
    for nic in nics:
        gpus = near.get(nic.pci, ())
        functions: list[Nic | Vf] = list(nic.vfs) or ([nic] if len(gpus) == 1 else [])
        free = [function.pci for function in functions if function.pci not in taken]
        pairs.update(zip((gpu.pci for gpu in gpus if gpu.pci not in known), free, strict=False))
    return pairs


def make_rails(
    machine: Machine,
    near: Mapping[str, tuple[Gpu, ...]],
    pairs: Mapping[str, str],
    numbers: Mapping[str, int],
    pattern: str,
) -> tuple[Rail, ...]:
    """The rails of the machine, by number, those without one last."""
    functions = {function.pci: (nic, function) for nic in machine.nics for function in nic.functions}
    rails = []
    for subnet in dict.fromkeys(nic.subnet for nic in machine.nics if nic.pci in near):
        cards = tuple(nic for nic in machine.nics if nic.pci in near and nic.subnet == subnet)
        gpus = sorted((gpu for nic in cards for gpu in near[nic.pci]), key=lambda gpu: gpu.index)
        devices = tuple(Device(gpu, *functions[pairs[gpu.pci]]) for gpu in gpus if pairs.get(gpu.pci) in functions)
        number = numbers.get(subnet)
        resource = "" if number is None else pattern.replace("{n}", str(number))
        rails.append(Rail(subnet, number, resource, cards, {nic.pci: near[nic.pci] for nic in cards}, devices))
    return tuple(sorted(rails, key=lambda rail: (rail.number is None, rail.number, rail.subnet)))
