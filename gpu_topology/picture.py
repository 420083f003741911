"""A topology as a picture: the PCIe tree of each NUMA node, the matrix, the classes. SVG for light and dark pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gpu_topology.api import UNKNOWN_NODE, Gpu, Link, Topology
from gpu_topology.pci import is_address
from gpu_topology.text import LEGEND, ranges, size
from gpu_topology.tree import Branch, Leaf, grow

MARGIN, WIDTH = 24, 1240  # panels are put beside each other up to this width
LEAF, LEAF_HEIGHT, GAP = 106, 74, 10
LEVEL, BOX = 46, 24  # from one level of the tree to the next, and the height of a bridge's box
CELL, ROW = 46, 22
COLOURS = 8  # of rails; further ones begin again
STYLE = """
svg { background: #ffffff; }
text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #24292f; }
.title { font-size: 18px; font-weight: 600; } .head { font-weight: 600; font-size: 13px; }
.note { fill: #57606a; font-size: 11px; }
.mono { font: 11px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #57606a; }
.middle { text-anchor: middle; } .right { text-anchor: end; } .strong { font-weight: 600; }
.panel { fill: #f6f8fa; stroke: #d0d7de; } .line { stroke: #8c959f; stroke-width: 1.5; fill: none; }
.bridge { fill: #ffffff; stroke: #8c959f; } .gpu { fill: #d9f2d9; stroke: #2d8a3e; }
.nic { fill: #dcebfb; stroke: #2f6fbf; }
.plain { fill: #eaeef2; stroke: #8c959f; }
.nv { fill: #2d8a3e; } .nv-text { fill: #ffffff; font-weight: 600; }
.pix { fill: #a6dba0; } .pxb { fill: #c9e9c0; } .phb { fill: #fdf0b5; } .node { fill: #fcd9a8; } .sys { fill: #f6c0b4; }
.self { fill: #eaeef2; }
.pix-text, .pxb-text, .phb-text, .node-text, .sys-text, .self-text { fill: #24292f; }
.rail0 { fill: #7a4fbf; } .rail1 { fill: #c2571a; } .rail2 { fill: #0f8a8a; } .rail3 { fill: #b0307a; }
.rail4 { fill: #8a7a00; } .rail5 { fill: #2f5fd0; } .rail6 { fill: #a33a3a; } .rail7 { fill: #4d6b2f; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #e6edf3; } .note, .mono { fill: #9aa4af; }
  .panel { fill: #161b22; stroke: #30363d; } .bridge { fill: #0d1117; stroke: #6e7781; } .plain { fill: #21262d; }
  .gpu { fill: #173d20; } .nic { fill: #14304f; } .self { fill: #21262d; } .self-text { fill: #e6edf3; }
}
"""


@dataclass(frozen=True)
class Drawn:
    """Some SVG with its size in pixels."""

    parts: Sequence[str]
    width: float
    height: float


def show_svg(topology: Topology) -> str:
    """The whole picture."""
    machine = topology.machine
    title = f"{len(machine.gpus)} GPUs, {len(machine.nics)} network cards, {len(topology.rails)} rails"
    blocks = [_panels(topology), _matrix(topology), _legend(topology)]
    width = max(block.width for block in blocks) + 2 * MARGIN
    parts = [_text(MARGIN, MARGIN + 16, title, "title")]
    top = MARGIN + 40.0
    for block in blocks:
        parts += [f'<g transform="translate({MARGIN} {top:g})">', *block.parts, "</g>"]
        top += block.height + MARGIN if block.parts else 0
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" width="{width:g}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _panels(topology: Topology) -> Drawn:
    """A panel for each NUMA node, as many in a row as fit."""
    rails = _rail_places(topology)
    panels = [_panel(topology, node, bridges, rails) for node, bridges in grow(topology.machine).items()]
    parts: list[str] = []
    left = top = widest = high = 0.0
    for panel in panels:
        if left and left + panel.width > WIDTH:
            left, top, high = 0.0, top + high + GAP, 0.0
        parts += [f'<g transform="translate({left:g} {top:g})">', *panel.parts, "</g>"]
        left += panel.width + GAP
        widest, high = max(widest, left - GAP), max(high, panel.height)
    return Drawn(parts, widest, top + high)


def _panel(topology: Topology, number: int, bridges: Sequence[Branch], rails: dict[str, int]) -> Drawn:
    node = {node.id: node for node in topology.machine.numa_nodes}.get(number)
    title = "NUMA node unknown" if number == UNKNOWN_NODE else f"NUMA node {number}"
    note = f"CPUs {ranges(node.cpus) or 'none'} · {size(node.memory)}" if node else ""
    drawn = [_branch(bridge, rails) for bridge in bridges]
    width = max(sum(one.width + GAP for one in drawn) + GAP, 8.0 * max(len(title), len(note)))
    height = 56 + max((one.height for one in drawn), default=0) + GAP
    parts = [
        f'<rect class="panel" width="{width:g}" height="{height:g}" rx="8"/>',
        _text(GAP, 20, title, "head"),
        _text(GAP, 37, note, "note"),
    ]
    left = float(GAP)
    for one in drawn:
        parts += [f'<g transform="translate({left:g} 50)">', *one.parts, "</g>"]
        left += one.width + GAP
    return Drawn(parts, width, height)


def _branch(branch: Branch, rails: dict[str, int]) -> Drawn:
    """A bridge over what hangs below it, joined by lines."""
    below = [_branch(one, rails) if isinstance(one, Branch) else _leaf(one, rails) for one in branch.below]
    width = max(sum(one.width for one in below) + GAP * (len(below) - 1), float(LEAF))
    middle = width / 2
    parts = []
    left = 0.0
    for one in below:
        centre = left + one.width / 2
        parts.append(f'<path class="line" d="M{middle:g} {BOX} V{BOX + 11} H{centre:g} V{LEVEL}"/>')
        parts += [f'<g transform="translate({left:g} {LEVEL})">', *one.parts, "</g>"]
        left += one.width + GAP
    name = _name(branch)
    box = min(width, 8.0 * len(name) + 20)
    parts += [
        f'<rect class="bridge" x="{middle - box / 2:g}" width="{box:g}" height="{BOX}" rx="5"/>',
        _text(middle, 16, name, "middle"),
        f"<title>{escape(' › '.join(branch.names))}</title>",
    ]
    return Drawn(parts, width, LEVEL + max(one.height for one in below))


def _name(branch: Branch) -> str:
    """What to write on a bridge: the host bridge, the switch at whose ports the tree forks, or the port of one card."""
    last = branch.names[-1]
    if not is_address(last):
        return last
    slots = {one.pci.rpartition(".")[0] for one in branch.below if not isinstance(one, Branch)}
    is_port = len(slots) == 1 and len(branch.below) > 1
    return f"{'port' if is_port else 'switch'} {last.removeprefix('0000:')}"


def _leaf(device: Leaf, rails: dict[str, int]) -> Drawn:
    """A GPU or card; a strip at its foot has the colour of its rail."""
    if isinstance(device, Gpu):
        kind, lines = "gpu", [device.name.removeprefix("NVIDIA ").removeprefix("Tesla ")]
    else:
        kind = "nic" if device.roce else "plain"
        vfs = f"{len(device.vfs)} VFs" if device.vfs else ""
        lines = [device.subnet or ("RoCE" if device.roce else "no RoCE"), vfs]
    name = device.id if isinstance(device, Gpu) else device.name
    middle = LEAF / 2
    parts = [
        f'<rect class="{kind}" width="{LEAF}" height="{LEAF_HEIGHT}" rx="5"/>',
        _text(middle, 18, name, "middle strong"),
        _text(middle, 33, device.pci.removeprefix("0000:"), "mono middle"),
        *(_text(middle, 47 + 14 * place, line[:16], "note middle") for place, line in enumerate(lines)),
        f"<title>{escape(_hint(device))}</title>",
    ]
    if device.pci in rails:
        parts.append(
            f'<rect class="rail{rails[device.pci]}" x="1" y="{LEAF_HEIGHT - 5}" width="{LEAF - 2}" height="4"/>'
        )
    return Drawn(parts, LEAF, LEAF_HEIGHT)


def _hint(device: Leaf) -> str:
    """What a reader sees who points at a device."""
    if isinstance(device, Gpu):
        return f"{device.id} {device.pci} {device.name} {device.uuid}"
    return f"{device.name} {device.pci} {device.netdev}: {', '.join(vf.name for vf in device.vfs) or 'no VFs'}"


def _rail_places(topology: Topology) -> dict[str, int]:
    """The colour of each GPU and card of a rail, by PCI address."""
    places: dict[str, int] = {}
    for place, rail in enumerate(topology.rails):
        places |= dict.fromkeys([*(nic.pci for nic in rail.nics), *(gpu.pci for gpu in rail.gpus)], place % COLOURS)
    return places


def _matrix(topology: Topology) -> Drawn:
    """The matrix, a colour for each relation."""
    machine = topology.machine
    columns: list[Leaf] = [*machine.gpus, *machine.nics]
    if not machine.gpus:
        return Drawn([], 0, 0)
    names = [one.id if isinstance(one, Gpu) else one.name for one in columns]
    side = 8.0 * max(map(len, names)) + 8
    cell = max(CELL, 7.2 * max(map(len, names)) + 8)
    parts = [_text(0, 12, "What lies between", "head")]
    for place, name in enumerate(names):
        parts.append(_text(side + (place + 0.5) * cell, 34, name, "note middle"))
    for line, gpu in enumerate(machine.gpus):
        y = 42 + line * ROW
        parts.append(_text(side - 8, y + 15, gpu.id, "note right"))
        for place, name in enumerate(names):
            parts += _cell(side + place * cell, y, cell, None if name == gpu.id else topology.links[gpu.id][name])
    return Drawn(parts, side + cell * len(columns), 42.0 + ROW * len(machine.gpus))


def _cell(x: float, y: float, width: float, link: Link | None) -> Iterator[str]:
    text = "X" if link is None else str(link)
    kind = "self" if link is None else "nv" if link.nvlinks else text.lower()
    score = "" if link is None else f"<title>score {link.score}</title>"
    yield f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width - 2:g}" height="{ROW - 2}" rx="3">{score}</rect>'
    yield _text(x + width / 2 - 1, y + 14.5, text, f"middle {kind}-text")


def _legend(topology: Topology) -> Drawn:
    """The words of the matrix, and the classes with their colours."""
    parts: list[str] = []
    words = [line.split(None, 1) for line in LEGEND.splitlines()] if topology.machine.gpus else []
    for place, (word, meaning) in enumerate(words):
        x, y = 370 * (place % 3), 18 * (place // 3)
        kind = "nv" if word == "NV#" else word.lower()
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="12" height="12" rx="2"/>')
        parts.append(_text(x + 18, y + 10, f"{word}  {meaning}", "note"))
    top = 54 if words else 0
    for place, rail in enumerate(topology.rails):
        y = top + 20 * place
        own = ", ".join(device.id for device in rail.devices) or "no device: see gpu-topology vfs plan"
        parts.append(f'<rect class="rail{place % COLOURS}" y="{y}" width="12" height="12" rx="2"/>')
        parts.append(_text(18, y + 10, f"{rail.resource or 'no number yet'} · {rail.subnet} · {own}", ""))
    longest = max((len(device.id) + 2 for rail in topology.rails for device in rail.devices), default=0)
    most = max((len(rail.devices) for rail in topology.rails), default=0)
    return Drawn(parts, max(1110.0 if words else 0.0, 300.0 + 6.5 * longest * most), top + 20.0 * len(topology.rails))


def _text(x: float, y: float, text: str, kind: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(shown)}</text>'
