"""The Go program: built once, kept with the other tools, and asked."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_topology.predict import ADMIT, Affinity, Verdict
from tools.kubelet_oracle.cases import Document
from tools.servers import ToolMissingError, tools_directory

_SOURCES = Path(__file__).parent
_AT_ONCE = 250  # cases a process


@dataclass(frozen=True)
class Answer:
    """What kubelet said."""

    reason: str
    affinities: dict[str, Affinity]
    message: str = ""


def program() -> Path:
    """Where the program is, built or not; its name changes with its sources."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.glob("*.go*")):
        digest.update(path.read_bytes())
    return tools_directory() / f"kubelet-oracle-{digest.hexdigest()[:12]}"


def build() -> Path:
    """The program, built if it is not there yet. Raises ToolMissingError."""
    target = program()
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise ToolMissingError("the oracle is kubelet's own code: it is built with Go, and go is not on PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f"{target.name}.{os.getpid()}")
    command = ["go", "build", "-trimpath", "-mod=readonly", "-ldflags", "-s -w", "-o", str(scratch), "."]
    done = subprocess.run(command, check=False, cwd=_SOURCES, capture_output=True, text=True)
    if done.returncode:
        raise ToolMissingError(f"cannot build the oracle: {done.stderr.strip()}")
    scratch.rename(target)
    return target


def ask(documents: Sequence[Document]) -> list[Answer]:
    """Kubelet's answers to cases, in their order. Raises ToolMissingError."""
    path = build()
    parts = [documents[start : start + _AT_ONCE] for start in range(0, len(documents), _AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return [answer for answers in threads.map(lambda part: _ask(path, part), parts) for answer in answers]


def _ask(path: Path, documents: Sequence[Document]) -> list[Answer]:
    lines = [json.dumps(document) + "\n" for document in documents]
    answers: list[Answer] = []
    environment = {**os.environ, "GOMAXPROCS": "1", "GOGC": "800"}
    while len(answers) < len(lines):  # it ends after a case in which kubelet hangs
        rest = "".join(lines[len(answers) :])
        done = subprocess.run([path], input=rest, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        answers += [read_answer(json.loads(line)) for line in done.stdout.splitlines()]
    return answers


def read_answer(document: Any) -> Answer:
    """From the JSON of an answer."""
    affinities = {
        name: Affinity(tuple(own["nodes"]), is_preferred=own["is_preferred"])
        for name, own in document.get("affinities", {}).items()
    }
    return Answer(document["reason"], affinities, document.get("message", ""))


def agrees(verdict: Verdict, answer: Answer) -> bool:
    """Whether kubelet said what was predicted; a container that is left to chance may be anywhere."""
    if verdict.reason != answer.reason:
        return False
    return answer.reason != ADMIT or all(
        known is None or known == answer.affinities[name] for name, known in verdict.affinities.items()
    )
