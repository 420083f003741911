"""How a node is chosen: the points of kube-scheduler's own plugins, and those of the scheduler plugin beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scheduler_plugin.columns import Array
from scheduler_plugin.facts import Key, Needs
from scheduler_plugin.scoring import score
from scheduler_plugin.settings import Settings
from scheduler_plugin.terms import terms_of
from scheduler_plugin.view import View

EXTENDER_WEIGHT = 50 * 10  # the guide's weight, times what kube-scheduler makes of an extender's points
IMAGE_LEAST, IMAGE_MOST = 23e6, 1000e6  # bytes: between these ImageLocality goes from 0 to 100 points
SPREAD = {"weight": 13, "pods": 4}
OFF = {"weight": 0}


@dataclass(frozen=True)
class Situation:
    """What is known of the nodes beside the view, an element a node. `free`: the part of its GPUs that is free, after
    the pod; `holders`: how many nodes have a dataset; `holds`: which.
    """

    free: Array
    holds: Callable[[Key], Array]


Points = Callable[[Needs, Situation], Array]


def least_allocated(_: Needs, situation: Situation) -> Array:
    """NodeResourcesFit's default: 100 on an empty node."""
    return np.floor(100 * situation.free)


def most_allocated(_: Needs, situation: Situation) -> Array:
    """Its opposite, which packs."""
    return np.floor(100 * (1 - situation.free))


def image_locality(needs: Needs, situation: Situation) -> Array:
    """As kube-scheduler scores images: an item's bytes times the part of the nodes that have it, from 0 to 100; and the
    default's points.
    """
    total = np.zeros(len(situation.free))
    for wanted in needs.wanted:
        holds = situation.holds(wanted.key)
        total += holds * wanted.bytes * holds.mean()
    points = 100 * (np.clip(total, IMAGE_LEAST, IMAGE_MOST) - IMAGE_LEAST) / (IMAGE_MOST - IMAGE_LEAST)
    return np.floor(points) + least_allocated(needs, situation)


@dataclass(frozen=True)
class Strategy:
    """A name, kube-scheduler's own points, and the settings of the scheduler plugin, None without it."""

    name: str
    points: Points
    settings: Settings | None

    def totals(self, needs: Needs, view: View, names: Sequence[str], situation: Situation) -> Array:
        """What kube-scheduler would add up for each of these nodes."""
        own = self.points(needs, situation)
        if self.settings is None:
            return own
        return own + EXTENDER_WEIGHT * score(needs, view.columns(names), terms_of(self.settings)).scores


def strategies() -> list[Strategy]:
    """All that are compared, each with the spread off and on."""
    found = []
    for name, points, terms in (
        ("least allocated", least_allocated, None),
        ("most allocated", most_allocated, None),
        ("like image locality", image_locality, None),
        ("exact", least_allocated, {"dataset": {"mode": "exact"}}),
        ("expected-wait", least_allocated, {"dataset": {"mode": "expected-wait"}}),
    ):
        make = partial(_settings, terms)
        found.append(Strategy(name, points, make(OFF) if terms else None))
        found.append(Strategy(f"{name}, spread", points, make(SPREAD)))
    return found


def _settings(terms: dict[str, Any] | None, spread: dict[str, Any]) -> Settings:
    without = {"dataset": OFF, "rail": OFF, "numa": OFF, "links": OFF}
    return Settings.model_validate({"terms": {**(without if terms is None else terms), "spread": spread}})
