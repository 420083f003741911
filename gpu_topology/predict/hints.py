"""Sets of NUMA nodes as bit masks, and kubelet's hints: the sets that a request fits on, and which are preferred."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple


class Hint(NamedTuple):
    """A set of NUMA nodes that one resource would fit on; `mask` None is no preference."""

    mask: int | None
    preferred: bool


# What the Topology Manager makes of a resource without hints: None where it does not matter, () where nothing fits.
Hints = tuple[Hint, ...] | None
ANYWHERE = (Hint(None, preferred=True),)
NOWHERE = (Hint(None, preferred=False),)


def mask_of(nodes: Iterable[int]) -> int:
    """The mask with these nodes' bits; a negative number is no node."""
    mask = 0
    for node in nodes:
        if node >= 0:
            mask |= 1 << node
    return mask


def bits_of(mask: int) -> tuple[int, ...]:
    """The numbers of a mask's bits, ascending."""
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


@cache
def nodes_of(mask: int) -> tuple[int, ...]:
    """The nodes of a mask, ascending; remembered, since there are few."""
    return bits_of(mask)


@cache
def place_of(nodes: tuple[int, ...] | None) -> int | None:
    """The mask of a device's nodes; None is None."""
    return None if nodes is None else mask_of(nodes)


@cache
def subsets(mask: int) -> tuple[int, ...]:
    """Every set of nodes in `mask` but the empty one, small sets first."""
    found = []
    part = mask
    while part:
        found.append(part)
        part = (part - 1) & mask
    return tuple(sorted(found, key=lambda some: (some.bit_count(), some)))


def make_hints(nodes: int, could_hold: Callable[[int], bool], holds: Callable[[int], bool]) -> tuple[Hint, ...]:
    """The sets of `nodes` that hold a request now; preferred are those as small as the smallest that ever could.

    `could_hold` asks what all of the resource would allow, used or not; `holds` what is free allows.
    """
    width = 0
    found = []
    for some in subsets(nodes):
        if not width and could_hold(some):
            width = some.bit_count()
        if holds(some):
            found.append(some)
    width = width or nodes.bit_count()
    return tuple([Hint(some, some.bit_count() == width) for some in found])
