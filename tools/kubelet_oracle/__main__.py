"""python -m tools.kubelet_oracle [--cases N] [--seed N]: is `predict` right? Kubelet's own managers say."""

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from gpu_topology.predict import UNKNOWN
from tools.kubelet_oracle.cases import Document, read_case
from tools.kubelet_oracle.chance import make_case
from tools.kubelet_oracle.oracle import Answer, agrees, ask

_SHOWN = 3


def main() -> int:
    """Compares and counts; the exit code is 1 if one answer differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.kubelet_oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same cases (1)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write cases with kubelet's answers, a line each")
    arguments = parser.parse_args()
    chance = Random(arguments.seed)
    documents = [make_case(chance) for _ in range(arguments.cases)]
    answers = ask(documents)
    if arguments.record:
        _record(arguments.record, documents, answers)
    return _compare(documents, answers)


def _compare(documents: list[Document], answers: list[Answer]) -> int:
    said: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    wrong = []
    loose = 0
    for document, answer in zip(documents, answers, strict=True):
        verdict = read_case(document).verdict()
        said[answer.reason] += 1
        if verdict.reason == UNKNOWN:
            unknown[verdict.why] += 1
        elif not agrees(verdict, answer):
            wrong.append((document, verdict, answer))
        loose += None in verdict.affinities.values()
    for document, verdict, answer in wrong[:_SHOWN]:
        print(f"predicted {verdict}\nkubelet said {answer}\n{json.dumps(document)}\n")
    for reason, count in said.most_common():
        print(f"{count:7,}  {reason}")
    decided = len(documents) - sum(unknown.values())
    print(f"{decided:,} of {len(documents):,} predicted, {decided - len(wrong):,} of them as kubelet said")
    print(f"{loose:,} admitted with a container's NUMA nodes left to chance; {sum(unknown.values()):,} unknown:")
    for why, count in unknown.most_common():
        print(f"{count:7,}  {why}")
    return 1 if wrong else 0


def _record(path: Path, documents: list[Document], answers: list[Answer]) -> None:
    lines = (
        json.dumps({"case": document, "answer": asdict(replace(answer, message=""))}, separators=(",", ":"))
        for document, answer in zip(documents, answers, strict=True)
    )
    path.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
