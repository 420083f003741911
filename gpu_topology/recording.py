"""A machine as one file, DIR/machine.json: what discovery reads of its sysfs, its subnets, and what NVML says.

{"source": "where it is from",
 "sysfs": {"bus": {"pci": {"devices": {"0000:3b:00.0": "-> ../../../devices/…"}}}, …},
 "subnets": {"eth0": ["10.1.0.0/24"]},
 "nvml": {"0000:3b:00.0": {"name": "…", "uuid": "…", "nvlinks": {"0000:5e:00.0": 2}, "switch_nvlinks": 0}}}
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Network, ip_address, ip_network
from pathlib import Path

from gpu_topology.errors import BadFile, NotPermitted
from gpu_topology.network import live_subnets, parse_subnets, subnet_order
from gpu_topology.nvml import GpuFacts, read_facts
from gpu_topology.sysfs import Directory, Recorded, Recorder, Sysfs, Tree

FILE = "machine.json"
_WIDTH = 120
# udev can name interfaces after the MAC address and RDMA devices after the GUID.
_NAMED_BY_ADDRESS = re.compile(r"(?<=[a-z])x([0-9a-f]{16}|[0-9a-f]{12})(?![0-9a-f])")


@dataclass(frozen=True)
class Inputs:
    """All that a machine says of itself: sysfs, the subnets of its interfaces, and NVML's facts by PCI address."""

    sysfs: Sysfs
    subnets: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, GpuFacts]


def live_inputs(sysfs_root: Path) -> Inputs:
    """The machine this runs on, with sysfs below another root if need be."""
    return Inputs(Directory(sysfs_root), live_subnets(), read_facts())


def load_recording(folder: Path) -> Inputs:
    """A recorded machine. Raises BadFile."""
    path = folder / FILE
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "`gpu-topology record` makes such a folder"
        raise BadFile("read the recorded machine", str(path), cause, hint) from error
    if not isinstance(read, dict) or not isinstance(read.get("sysfs"), dict):
        raise BadFile("read the recorded machine", str(path), "it has no object sysfs")
    nvml = read.get("nvml")
    facts = {pci: parse_facts(one) for pci, one in nvml.items()} if isinstance(nvml, dict) else {}
    return Inputs(Recorded(read["sysfs"]), parse_subnets(read.get("subnets")), facts)


def parse_facts(read: object) -> GpuFacts:
    """NVML's facts as a recording has them; what is not of its type is as if it were not there."""
    if not isinstance(read, dict):
        return GpuFacts()
    texts = {name: read[name] for name in ("name", "uuid", "board") if isinstance(read.get(name), str)}
    peers = read.get("nvlinks")
    links = {pci: n for pci, n in peers.items() if type(n) is int and n > 0} if isinstance(peers, dict) else {}
    switched = read.get("switch_nvlinks")
    return GpuFacts(**texts, nvlinks=links, switch_nvlinks=switched if type(switched) is int and switched > 0 else 0)


def start_recording(inputs: Inputs) -> tuple[Inputs, Recorder]:
    """The same inputs, with what is read of their sysfs kept from now on."""
    recorder = Recorder(inputs.sysfs)
    return replace(inputs, sysfs=recorder), recorder


def write_recording(folder: Path, inputs: Inputs, recorder: Recorder, source: str) -> Path:
    """Writes what was read, without UUIDs, and with other subnets and names where these could tell whose it is."""
    document = {
        "source": source,
        "sysfs": _needed(recorder.tree),
        "subnets": _made_up(inputs.subnets),
        "nvml": {
            pci: {name: value for name, value in asdict(_anonymous(facts, place)).items() if value}
            for place, (pci, facts) in enumerate(sorted(inputs.facts.items()))
        },
    }
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(without_addresses(as_text(document)) + "\n", encoding="utf-8")
    except OSError as error:
        raise NotPermitted(
            "write", str(path), error.strerror or str(error), "name a folder you may write to"
        ) from error
    return path


def _needed(tree: Tree) -> Tree:
    """Of meminfo, which lists how a machine is used, only the line that is read."""
    needed: Tree = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            needed[name] = _needed(value)
        else:
            needed[name] = "\n".join(line for line in value.splitlines() if name != "meminfo" or "MemTotal" in line)
    return needed


def _anonymous(facts: GpuFacts, place: int) -> GpuFacts:
    """Without what tells one GPU from all others of the world."""
    return replace(facts, uuid=f"GPU-00000000-0000-0000-0000-{place:012d}" if facts.uuid else "")


def _made_up(subnets: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Other subnets: the same where the real ones are, in the same order, and as large, up to a /16 or /64."""
    real = sorted({ip_network(text) for texts in subnets.values() for text in texts}, key=subnet_order)
    made = {}
    for place, network in enumerate(real):
        width = 16 if isinstance(network, IPv4Network) else 64  # bits of the place a made subnet has for itself
        first = ip_address("10.0.0.0" if isinstance(network, IPv4Network) else "fd00::")
        length = max(network.prefixlen, network.max_prefixlen - width)
        made[str(network)] = str(ip_network((int(first) + (place + 1 << width), length)))
    return {name: [made[text] for text in texts] for name, texts in sorted(subnets.items())}


def without_addresses(text: str) -> str:
    """Text in which every name made from a MAC address or GUID is another one, the same for the same."""
    made: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        return made.setdefault(match[0], f"x{len(made) + 1:0{len(match[1])}x}")

    return _NAMED_BY_ADDRESS.sub(other, text)


def as_text(value: object, indent: int = 0) -> str:
    """JSON in which whatever fits on a line has one."""
    line = json.dumps(value)
    if not isinstance(value, dict) or not value or len(line) + indent <= _WIDTH - 40:
        return line
    inner = " " * (indent + 1)
    rows = [f"{inner}{json.dumps(name)}: {as_text(below, indent + 1)}" for name, below in value.items()]
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
