"""What sysfs does not say: a file that puts devices below switches and on NUMA nodes, for machines that hide these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_topology.errors import BadFile
from gpu_topology.pci import is_address


@dataclass(frozen=True)
class Overrides:
    """By PCI address: the switch a device hangs on, by any name, and its NUMA node."""

    switch: Mapping[str, str] = field(default_factory=dict)
    numa_node: Mapping[str, int] = field(default_factory=dict)

    def path(self, pci: str, path: tuple[str, ...]) -> tuple[str, ...]:
        """A device's way from the host bridge, as it is without the virtual machine."""
        switch = self.switch.get(pci)
        return path if switch is None else (f"bridge above {switch}", switch, pci)


def load_overrides(path: Path) -> Overrides:
    """Reads the file. Raises BadFile."""
    import yaml  # noqa: PLC0415 - slow to import, and seldom asked for

    try:
        # Everything is text here: to YAML 1.1, 0001:00:00.0 is a number of base 60.
        read = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506 - it makes text, lists and dicts only
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise _bad(path, " ".join(str(error).split())) from error
    if not isinstance(read, dict) or set(read) - {"switches", "numa_nodes"}:
        raise _bad(path, "it has to hold switches and numa_nodes, and nothing else")
    nodes = _by_address(path, "numa_nodes", read.get("numa_nodes", {}))
    odd = [name for name in nodes.values() if not (name.isascii() and name.isdigit() and len(name) < 6)]
    if odd:
        raise _bad(path, f"numa_nodes: {odd[0]!r} is not a node's number")
    return Overrides(
        _by_address(path, "switches", read.get("switches", {})), {pci: int(name) for pci, name in nodes.items()}
    )


def _by_address(path: Path, what: str, groups: object) -> dict[str, str]:
    """The name of its group for each address of `{name: [address, …]}`."""
    if not isinstance(groups, dict) or not all(isinstance(group, list) for group in groups.values()):
        raise _bad(path, f"{what} has to give a list of PCI addresses for each name")
    found: dict[str, str] = {}
    for name, group in groups.items():
        for pci in group:
            if not isinstance(pci, str) or not is_address(pci):
                raise _bad(path, f"{what}: {pci!r} is not a PCI address such as 0000:3b:00.0")
            if pci in found:
                raise _bad(path, f"{what}: {pci} is named twice")
            found[pci] = name
    return found


def _bad(path: Path, cause: str) -> BadFile:
    return BadFile("read the overrides", str(path), cause, "docs/guides/gpu-topology.md shows their form")
