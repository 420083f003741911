"""The terms of the score, one module each: a scalar reference that explains, and the same over arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Judgement, Needs, NodeFacts
from scheduler_plugin.settings import Settings
from scheduler_plugin.terms import dataset, links, numa, rail, spread


@dataclass(frozen=True)
class Term:
    """A part of the score. `judge` is the reference, of one node; `columns` gives the same raw values for many, and
    `normalise` makes 0..1 of them.
    """

    name: str
    weight: float
    applies: Callable[[Needs], bool]
    judge: Callable[[Needs, NodeFacts], Judgement]
    columns: Callable[[Needs, Columns], Array]
    normalise: Callable[[Array], Array]


def of_greatest(raw: Array) -> Array:
    """raw / greatest; all 0 where nothing is above 0."""
    greatest = raw.max(initial=0.0)
    return raw / greatest if greatest > 0 else np.zeros(len(raw))


def below_greatest(raw: Array) -> Array:
    """1 - raw / greatest: for what is better the less it is; all 1 where nothing is above 0."""
    greatest = raw.max(initial=0.0)
    return 1.0 - raw / greatest if greatest > 0 else np.ones(len(raw))


def terms_of(settings: Settings) -> tuple[Term, ...]:
    """The terms that are switched on."""
    given = settings.terms
    relieved = partial(spread.relieved, pods=given.spread.pods)
    everything = (
        _dataset(settings),
        Term("rail", given.rail.weight, rail.applies, rail.fit, rail.fit_columns, of_greatest),
        Term("numa", given.numa.weight, numa.applies, numa.alignment, numa.alignment_columns, numa.as_it_is),
        Term("links", given.links.weight, links.applies, links.best, links.best_columns, of_greatest),
        Term("spread", given.spread.weight, dataset.applies, spread.users, spread.users_columns, relieved),
    )
    return tuple(term for term in everything if term.weight > 0)


def _dataset(settings: Settings) -> Term:
    given = settings.terms.dataset
    if given.mode == "exact":
        judge, columns, normalise = dataset.exact, dataset.exact_columns, of_greatest
    else:
        judge, columns, normalise = dataset.expected_wait, dataset.expected_wait_columns, below_greatest
    return Term("dataset", given.weight, dataset.applies, judge, columns, normalise)
