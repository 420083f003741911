"""Why a pod is where it is: what was decided, term by term, from the facts that it was decided from."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from scheduler_plugin.arrays import Arrays, Slots
from scheduler_plugin.decisions import Decision, Filtered, Scored
from scheduler_plugin.facts import Needs, NodeFacts
from scheduler_plugin.filters import refuse
from scheduler_plugin.scoring import score
from scheduler_plugin.state import State

SHOWN = 20  # nodes, unless all are asked for

ONE_NODE = (
    "one node was left after the filters: kube-scheduler asks for no scores then, and those shown are what they would "
    "have been"
)
NOT_ASKED = "kube-scheduler has not asked this replica about the pod: these are the scores as things are now"
NO_SCORES = "kube-scheduler asked this replica which nodes are possible, not for scores: another replica may know"


def explanation(state: State, namespace: str, name: str, *, all_nodes: bool) -> dict[str, Any]:
    """The document of /explain; one with `problem` if nothing is known of the pod."""
    pod, decision = state.view.pod(namespace, name), state.decisions.of(namespace, name)
    if decision is None:
        if pod is None:
            return {"problem": f"this replica knows of no pod {name} in namespace {namespace} that concerns it"}
        decision = _as_it_would_be(state, state.view.needs(pod))
    asked = decision.scored or decision.filtered
    if asked is None:
        raise AssertionError("a decision has one of its parts")
    needs = asked.needs
    refused = decision.filtered.refused if decision.filtered else {}
    rows = _rows(state, needs, asked, decision.scored, refused)
    rows.sort(key=lambda row: (-row["score"], row["node"]))
    chosen = pod.node if pod else ""
    shown = rows if all_nodes else [row for row in rows[:SHOWN] if row["node"] != chosen]
    if not all_nodes and chosen:
        shown = [row for row in rows if row["node"] == chosen] + shown
    return {
        "pod": {"namespace": namespace, "name": name, "uid": needs.pod.uid},
        "datasets": [{"name": one.name, "namespace": one.key[0], "version": one.version} for one in needs.wanted],
        "devices": dict(needs.devices),
        "asked": 0 if state.decisions.of(namespace, name) is None else 2 if decision.scored else 1,
        "when": asked.when.isoformat(timespec="milliseconds"),
        "chosen": chosen or None,
        "notes": _notes(decision, needs, recorded=state.decisions.of(namespace, name) is not None),
        "count": len(rows),
        "nodes": shown,
        "refused": [{"node": node, "why": why} for node, why in sorted(refused.items())],
    }


def _as_it_would_be(state: State, needs: Needs) -> Decision:
    names = state.view.node_names()
    nodes = state.view.columns(names)
    refused = {names[place]: why for place, why in refuse(needs, nodes, state.settings.filters).unresolvable.items()}
    return Decision(Filtered(datetime.now(UTC), needs, nodes.nodes, orjson.dumps(names), refused))


def _rows(
    state: State, needs: Needs, asked: Filtered | Scored, scored: Scored | None, refused: dict[str, str]
) -> list[dict[str, Any]]:
    """A row for each node that was not refused."""
    names = orjson.loads(asked.written)
    places = [place for place, name in enumerate(names) if name not in refused]
    nodes = [asked.nodes[place] for place in places]
    found = score(needs, _columns_of(nodes), state.terms)
    given = scored.scores if scored else found.scores.tolist()
    return [
        {
            "node": names[place],
            "score": given[place] if scored else given[number],
            "terms": [
                {
                    "term": part.term.name,
                    "raw": float(part.raw[number]),
                    "normalised": round(float(part.normalised[number]), 4),
                    "weight": part.term.weight,
                    "why": part.term.judge(needs, nodes[number]).why,
                }
                for part in found.terms
            ],
        }
        for number, place in enumerate(places)
    ]


def _columns_of(nodes: Sequence[NodeFacts]) -> Slots:
    """Arrays of their own for facts that may be older than the view's."""
    arrays = Arrays()
    for slot, node in enumerate(nodes, 1):
        arrays.put(slot, node)
    return arrays.of(np.arange(1, len(nodes) + 1))


def _notes(decision: Decision, needs: Needs, *, recorded: bool) -> list[str]:
    notes = []
    if needs.pod.problem:
        notes.append(f"the pod's wish cannot be understood: {needs.pod.problem}")
    if not recorded:
        notes.append(NOT_ASKED)
    elif decision.scored is None and decision.filtered is not None:
        left = len(decision.filtered.nodes) - len(decision.filtered.refused)
        notes.append(ONE_NODE if left <= 1 else NO_SCORES)
    return notes
