"""The vote: which class all pods of a job get.

Each node that could take a pod of the job suggests the class of which it has most; the class with most votes wins. A
node's vote counts 1, and up to DATA_WEIGHT more by the share of the job's data that it has. Ties, of a node and of the
whole, are broken by a hash of job and class: alike wherever and whenever it is asked for one job, differently for
different ones, so that an empty cluster fills evenly.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DATA_WEIGHT = 9
MOST_NODES = 20  # of those that voted for the winner, in the record


@dataclass(frozen=True)
class Ballot:
    """A node that could take a pod of the job: how many devices of each class, and what share, 0 to 1, of its data."""

    node: str
    devices: Mapping[str, int]
    data: float = 0.0


@dataclass(frozen=True)
class Choice:
    """What won, with how many votes for each class, and the first nodes that suggested it."""

    resource: str
    votes: Mapping[str, int]
    reason: str
    nodes: Sequence[str] = ()


def choose(ballots: Iterable[Ballot], wanted: int, job: str) -> Choice | None:
    """The class for a job whose pods want so many devices each; None if no node has as many of one class."""
    votes: Counter[str] = Counter()
    suggested: dict[str, list[Ballot]] = {}
    for ballot in ballots:
        if resource := suggestion(ballot.devices, wanted, job):
            votes[resource] += 1 + round(DATA_WEIGHT * ballot.data)
            suggested.setdefault(resource, []).append(ballot)
    if not votes:
        return None
    best = min(votes, key=lambda resource: (-votes[resource], _rank(job, resource)))
    return Choice(
        best, dict(votes), _reason(best, votes, suggested), sorted(one.node for one in suggested[best])[:MOST_NODES]
    )


def suggestion(devices: Mapping[str, int], wanted: int, job: str) -> str | None:
    """The class of which a node has most, if that is enough for a pod."""
    enough = [resource for resource, count in devices.items() if count >= max(1, wanted)]
    return min(enough, key=lambda resource: (-devices[resource], _rank(job, resource)), default=None)


def _rank(job: str, resource: str) -> bytes:
    return hashlib.blake2b(f"{job}/{resource}".encode(), digest_size=8).digest()


def _reason(best: str, votes: Mapping[str, int], suggested: Mapping[str, Sequence[Ballot]]) -> str:
    total = sum(map(len, suggested.values()))
    with_data = sum(one.data > 0 for one in suggested[best])
    holders = f", {with_data} of which have data of the job" if with_data else ""
    tie = sum(count == votes[best] for count in votes.values()) > 1
    return (
        f"{len(suggested[best])} of {_nodes(total)} that could take its pods have most of it{holders}: "
        f"{votes[best]} of {sum(votes.values())} votes{', a tie' if tie else ''}"
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
