"""The snippets of README and guides do what these say: each block under `<!-- run -->` is run.

Blocks of a page with the same comment, one after the other, are run in one folder and with one root.
`<!-- run: needs NAMES -->` names what tests/needs.py knows, `<!-- run: notebook -->` runs the block in a kernel, and
`<!-- file: NAME -->` writes the block beside the others of the page.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from jupyter_client.manager import start_new_kernel

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_BLOCK = re.compile(r"^<!-- (run|file)(?:: ([^>]*))? -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = 300  # ends a snippet that hangs


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    verb: str
    argument: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in [GUIDES.parents[1] / "README.md", GUIDES.parent / "operations.md", *sorted(GUIDES.glob("*.md"))]:
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            yield Block(page.name, text.count("\n", 0, found.start()) + 1, found[1], found[2] or "", found[3], found[4])


def scenarios() -> list[ParameterSet]:
    runs = [block for block in blocks() if block.verb == "run"]
    groups = [list(group) for _, group in groupby(runs, key=lambda block: (block.page, block.argument))]
    return [
        pytest.param(group, id=f"{group[0].page}:{group[0].line}", marks=[pytest.mark.needs(*needs_of(group[0]))])
        for group in groups
    ]


def needs_of(block: Block) -> list[str]:
    return block.argument.removeprefix("needs ").split(", ") if block.argument.startswith("needs ") else []


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with what the guides suppose: images on a mount, a local disk, and programs."""
    pictures = sorted(Path(sysconfig.get_path("purelib")).glob("*/**/*.png"))
    for index, picture in enumerate(pictures):
        for part in ("train", "val"):
            folder = tmp_path / "nfs" / "images" / part / ("odd", "even")[index % 2]
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, folder / f"{index}.png")
    assert len(pictures) > 4
    (tmp_path / "local").mkdir()
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "dsctl", f'exec {sys.executable} -m dsagent.entrypoints.dsctl "$@"')
    program(tmp_path / "bin" / "dsagent", f'exec {sys.executable} -m dsagent.entrypoints.serve "$@"')
    program(tmp_path / "bin" / "dsagent-init", f'exec {sys.executable} -m dsagent.entrypoints.init "$@"')
    program(tmp_path / "bin" / "gpu-topology", f'exec {sys.executable} -m gpu_topology.command "$@"')
    program(tmp_path / "bin" / "python", f'exec {sys.executable} "$@"')
    program(tmp_path / "bin" / "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    # One node, one task: what srun does to the environment is not what is tested.
    program(tmp_path / "bin" / "srun", 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"')
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def put(text: str, place: Path) -> str:
    """A snippet with the guides' paths where they are here."""
    for path, here in {"/mnt/nfs": "nfs", "/opt/dsagent/bin": "bin", "/local": "local"}.items():
        text = text.replace(path, str(place / here))
    return text


@pytest.mark.parametrize("group", scenarios())
def test_snippets(group: list[Block], place: Path) -> None:
    for block in blocks():
        if block.page == group[0].page and block.verb == "file":
            (place / block.argument).write_text(put(block.text, place))
    if group[0].argument == "notebook":
        run_in_kernel([put(block.text, place) for block in group], place)
        return
    for block in group:
        run_as_script(block, place)


def run_as_script(block: Block, place: Path) -> None:
    (place / "snippet").write_text(put(block.text, place))
    command = [sys.executable, "snippet"] if block.language == "python" else ["bash", "-eu", "snippet"]
    done = subprocess.run(
        command, cwd=place, env=environment(place), check=False, capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr
    failures = [line for line in done.stderr.splitlines() if line.startswith(("dsctl:", "Traceback"))]
    assert [line for line in failures if "is in use by" not in line] == []


def environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DSAGENT_", "AWS_", "SLURM_"))}
    repository = str(GUIDES.parents[1])
    return {
        **kept,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([repository, *kept.get("PYTHONPATH", "").split(os.pathsep)]),
        "DSAGENT_ROOT": str(place / "root"),
        "DSAGENT_KEEP_FREE": "0",
        "HF_HUB_OFFLINE": "1",
        "SLURM_JOB_ID": "42",
        "USER": "someone",
    }


def run_in_kernel(cells: list[str], place: Path) -> None:
    manager, client = start_new_kernel(cwd=str(place), env=environment(place))
    try:
        for cell in cells:
            reply = client.execute_interactive(cell, timeout=_SECONDS, output_hook=lambda _: None)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_every_page_is_in_the_index() -> None:
    index = (GUIDES / "README.md").read_text()
    assert [
        page.name for page in GUIDES.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
    ] == []


def test_links_lead_somewhere() -> None:
    pages = [*GUIDES.parents[1].glob("*.md"), *GUIDES.parent.rglob("*.md")]
    texts = [(page, re.sub("`[^`]*`", "", page.read_text())) for page in pages]
    targets = [(page, found) for page, text in texts for found in re.findall(r"\]\(([^)#]+)[^)]*\)", text)]
    broken = [
        f"{page.name}: {target}"
        for page, target in targets
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
