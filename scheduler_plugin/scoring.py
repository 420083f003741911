"""From terms to what kube-scheduler is told: integers from 0 to 10."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Needs
from scheduler_plugin.terms import Term

GREATEST = 10  # extenderv1.MaxExtenderPriority


@dataclass(frozen=True)
class TermScores:
    """A term's values, an element a node."""

    term: Term
    raw: Array
    normalised: Array


@dataclass(frozen=True)
class Scores:
    """The scores of nodes, an element each. `failed`: terms that could not be had, and why; they count for nothing."""

    scores: NDArray[np.int64]
    terms: tuple[TermScores, ...]
    failed: Mapping[str, str]


def score(needs: Needs, nodes: Columns, terms: Sequence[Term]) -> Scores:
    """10 x the weighted mean of the terms that apply to the pod, rounded half up; 0 for all if none does."""
    parts: list[TermScores] = []
    failed: dict[str, str] = {}
    for term in terms:
        try:
            if term.applies(needs):
                parts.append(_values(term, needs, nodes))
        except Exception as error:  # noqa: BLE001 - an error costs its own term only
            failed[term.name] = repr(error)
    total = sum((part.term.weight * part.normalised for part in parts), np.zeros(len(nodes)))
    weight = sum(part.term.weight for part in parts)
    mean = total / weight if weight else total
    return Scores(np.floor(GREATEST * mean + 0.5).astype(np.int64), tuple(parts), failed)


def _values(term: Term, needs: Needs, nodes: Columns) -> TermScores:
    raw = term.columns(needs, nodes)
    normalised = term.normalise(raw)
    if not np.all((normalised >= 0) & (normalised <= 1)):
        raise ValueError("a normalised value is not from 0 to 1")
    return TermScores(term, raw, normalised)
