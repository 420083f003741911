"""`make demo`: the whole life of a dataset, on files that this machine has already."""

import json
import os
import shlex
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

FILES = 20_000  # or a few more
MOST_FILES, MOST_BYTES = 4_000, 50 << 20  # of one folder
COPIES = 4  # of the tree, that the demo has on the disk at most
CHANGED = 100
COPY = "beside it: cp -r"
# Parts of the Python installation, for the small cache.
SMALL = ("email", "encodings", "asyncio", "unittest")


@dataclass
class Demo:
    """Runs commands, shows them, and keeps how long each took."""

    work: Path
    about: str = ""
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

    def run(self, what: str, *command: object) -> None:
        """Any other command, to compare with."""
        print(f"\n$ {shlex.join(map(str, command))[:100]}", flush=True)
        began = time.perf_counter()
        subprocess.run(list(map(str, command)), check=True)
        if what:
            self.rows.append((what, time.perf_counter() - began, ""))


def main() -> int:
    """Runs the demo in a folder of its own, and removes that whatever happens."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the tree may be the very Python that runs this
    work = Path(tempfile.mkdtemp(prefix="dsagent-demo-"))
    try:
        demo = Demo(work)
        show_life(demo, gather(demo))
        show_eviction(demo)
        show_table(demo)
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    finally:
        remove_tree(str(work))
    return 0


def gather(demo: Demo) -> Path:
    """A tree of real files that can be changed: folders of this machine, copied until there are enough."""
    folders: list[Path] = []
    files = size = 0
    for tree in ("/usr/share", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/lib"):
        for folder in sorted(path for path in Path(tree).iterdir() if path.is_dir() and not path.is_symlink()):
            sizes = list(_sizes(str(folder)))
            small = len(sizes) <= MOST_FILES and sum(sizes) <= MOST_BYTES
            if files < FILES and small and min(sizes, default=0) >= 0:
                folders.append(folder)
                files += len(sizes)
                size += sum(sizes)
    free = shutil.disk_usage(demo.work).free
    if files < FILES or free < COPIES * size:
        sys.exit(f"found {files:,} files of {FILES:,}; {COPIES} x {size:,} bytes have to fit into {free:,}: set TMPDIR")
    demo.about = f"{files:,} files, {size / 1e6:,.0f} MB"
    print(f"{demo.about} from {folders[0]} to {folders[-1]}; everything happens in {demo.work}")
    source = demo.work / "source"
    source.mkdir()
    demo.run("", "cp", "-r", "--parents", *folders, source)
    os.sync()  # or the first command that syncs what it wrote would wait for this too
    return source


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


def show_life(demo: Demo, source: Path) -> None:
    """Pack, cache, ask again, verify, change some files, update."""
    store = demo.work / "store"
    demo.dsctl("pack it into a store", "pack", source, store, "--name", "demo", "--skip-special")
    demo.run(COPY, "cp", "-r", source, demo.work / "copied")
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
    leased, newest, middle, oldest = sorted(SMALL, key=lambda name: sum(_sizes(str(library / name))))
    for name in (leased, oldest, middle):
        lease = ("--lease", "a-job", "--lease-for", "1h") if name == leased else ()
        demo.dsctl("", "cache", library / name, *lease, "--skip-special", root="small")
    used = demo.dsctl("", "df", root="small")["used"]
    demo.dsctl("", "cache", library / newest, "--skip-special", "--capacity", used, "--dry-run", root="small")
    result = demo.dsctl("", "cache", library / newest, "--skip-special", "--capacity", used, root="small")
    evicted = [one["dataset"] for one in result["evicted"]]
    _expect(evicted[:1] == [oldest] and leased not in evicted, f"{oldest} is evicted, and {leased}, leased, is not")


def show_table(demo: Demo) -> None:
    """How long each step took, the start of the program included."""
    print(f"\n{demo.about}, {os.cpu_count()} CPUs; what is read lies in memory already\n")
    copied = next(seconds for what, seconds, _ in demo.rows if what == COPY)
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
