"""`make demo`: the whole life of a dataset, on files that this machine has already."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsagent.engine.tree import remove_tree

FEWEST_FILES = 10_000
MOST_BYTES = 1 << 30
COPIES = 5  # of the tree, that the demo has on the disk at most
CHANGED = 100
# Parts of the Python installation, for the small cache; the first is leased, the last one evicts another.
SMALL = ("email", "encodings", "asyncio", "unittest")


@dataclass(frozen=True)
class Tree:
    """A folder of real files."""

    path: Path
    files: int
    bytes: int


@dataclass
class Demo:
    """Runs commands, shows them, and keeps how long each took."""

    work: Path
    rows: list[tuple[str, float, str]] = field(default_factory=list)

    def dsctl(self, what: str, *arguments: object, root: str = "root") -> dict[str, Any]:
        """What `dsctl ... -o json` answers; its progress goes straight to the terminal."""
        shown = [str(argument) for argument in arguments]
        print(f"\n$ dsctl --root {self.work / root} {' '.join(shown)}", flush=True)
        program = str(Path(sys.executable).with_name("dsctl"))
        command = [program, "--root", str(self.work / root), "--keep-free", "0", "-o", "json", *shown]
        began = time.perf_counter()
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        seconds = time.perf_counter() - began
        print(f"  {seconds:.1f} s: {_short(answer)}", flush=True)
        if what:
            self.rows.append((what, seconds, _note(answer)))
        return answer  # type: ignore[no-any-return]

    def copy(self, what: str, source: Path, target: str) -> Path:
        """`cp -r`, as the thing to compare with."""
        print(f"\n$ cp -r {source} {self.work / target}", flush=True)
        began = time.perf_counter()
        subprocess.run(["cp", "-r", source, self.work / target], check=True)
        if what:
            self.rows.append((what, time.perf_counter() - began, ""))
        return self.work / target


def main() -> int:
    """Runs the demo in a folder of its own, and removes that whatever happens."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the tree may be the very Python that runs this
    work = Path(tempfile.mkdtemp(prefix="dsagent-demo-"))
    try:
        tree = find_tree(shutil.disk_usage(work).free // COPIES)
        print(f"{tree.files:,} files, {tree.bytes / 1e6:,.0f} MB in {tree.path}; everything happens in {work}")
        demo = Demo(work)
        show_life(demo, tree)
        show_eviction(demo)
        show_table(demo, tree)
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    finally:
        remove_tree(str(work))
    return 0


def find_tree(most_bytes: int) -> Tree:
    """The first tree that has enough files, all of them readable, and is not too large."""
    trees = []
    for path in (Path("/usr/share"), Path(sysconfig.get_path("stdlib")), Path(sys.prefix, "lib"), Path("/usr/lib")):
        sizes = list(_sizes(str(path)))
        trees.append(Tree(path, len(sizes), sum(sizes)))
        if len(sizes) >= FEWEST_FILES and trees[-1].bytes <= min(MOST_BYTES, most_bytes) and min(sizes) >= 0:
            return trees[-1]
    found = "; ".join(f"{tree.path}: {tree.files:,} files, {tree.bytes / 1e6:,.0f} MB" for tree in trees)
    sys.exit(f"no tree of {FEWEST_FILES:,} files or more that fits {COPIES} times into the temporary folder: {found}")


def _sizes(path: str) -> Iterator[int]:
    """The size of each file; a negative one for what this user cannot read."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat().st_size if os.access(entry.path, os.R_OK) else -1
    except OSError:
        yield -1


def show_life(demo: Demo, tree: Tree) -> None:
    """Pack, cache, ask again, verify, change some files, update."""
    source = demo.copy("", tree.path, "source")  # one that can be changed
    store = demo.work / "store"
    demo.dsctl("pack it into a store", "pack", source, store, "--name", "demo", "--skip-special")
    first = demo.dsctl("cache it from the store", "cache", store)
    _expect(first["outcome"] == "fetched" and first["fetched_bytes"] == first["bytes"], "all of it is fetched")
    again = demo.dsctl("ask for it again", "cache", store)
    _expect(again["outcome"] == "hit" and again["path"] == first["path"], "asking again is a hit")
    _expect(not demo.dsctl("re-read and verify it", "verify", "demo")["bad"], "every file is what was packed")
    changed = change(source)
    print(f"\n{CHANGED} files are changed: {changed:,} bytes")
    packed = demo.dsctl("pack what changed", "pack", source, store, "--skip-special")
    _expect(packed["new_bundles"] == 1, "only changed files are packed")
    updated = demo.dsctl("update the cache", "cache", store)
    _expect(updated["outcome"] == "updated" and updated["fetched_bytes"] == changed, "only changed files are fetched")
    demo.copy("beside it: cp -r", source, "copied")


def change(folder: Path) -> int:
    """Appends to files spread over a tree; returns how many bytes those have now."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    chosen = files[:: len(files) // CHANGED][:CHANGED]
    for path in chosen:
        path.chmod(0o644)
        with path.open("ab") as file:
            file.write(b"changed by the demo\n")
    return sum(path.stat().st_size for path in chosen)


def show_eviction(demo: Demo) -> None:
    """Fills a small cache: the version that was not used for longest and has no lease has to go."""
    library = Path(sysconfig.get_path("stdlib"))
    leased, oldest, *_, last = SMALL
    for name in SMALL[:-1]:
        lease = ("--lease", "a-job", "--lease-for", "1h") if name == leased else ()
        demo.dsctl("", "cache", library / name, *lease, "--skip-special", root="small")
    used = demo.dsctl("", "df", root="small")["used"]
    demo.dsctl("", "cache", library / last, "--skip-special", "--capacity", used, "--dry-run", root="small")
    result = demo.dsctl("", "cache", library / last, "--skip-special", "--capacity", used, root="small")
    evicted = [one["dataset"] for one in result["evicted"]]
    _expect(evicted[:1] == [oldest] and leased not in evicted, f"{oldest} is evicted, and {leased}, leased, is not")


def show_table(demo: Demo, tree: Tree) -> None:
    """How long each step took, the start of the program included."""
    print(f"\n{tree.files:,} files, {tree.bytes / 1e6:,.0f} MB, {os.cpu_count()} CPUs; all reads come from memory\n")
    copied = demo.rows[-1][1]
    print(f"{'step':<26}{'seconds':>8}{'of cp -r':>10}  what was moved")
    for what, seconds, note in demo.rows:
        print(f"{what:<26}{seconds:>8.1f}{seconds / copied:>9.2f}x  {note}")


def _short(answer: Any) -> str:
    """An answer in one line, without the parts that take many."""
    if isinstance(answer, list):
        return json.dumps(answer)
    return json.dumps({key: value for key, value in answer.items() if key not in ("path", "seconds", "version")})


def _note(answer: dict[str, Any]) -> str:
    if "new_bundles" in answer:
        return f"{answer['new_bundles']} of {answer['bundles']} bundles written"
    if "fetched_bytes" in answer:
        return f"{answer['fetched_bytes'] / 1e6:,.1f} of {answer['bytes'] / 1e6:,.1f} MB fetched"
    return ""


def _expect(met: bool, promise: str) -> None:
    if not met:
        sys.exit(f"the demo went wrong: not so that {promise}")
    print(f"  so: {promise}")


if __name__ == "__main__":
    sys.exit(main())
