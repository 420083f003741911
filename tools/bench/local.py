"""Caching from a store on the same disk, and packing into one: 50,000 files of 4-28 KB."""

from pathlib import Path

from tools.bench import trees
from tools.bench.disk import loop_ext4, remove, settle
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting, command, shell
from tools.bench.timing import Contender, Result, race

OURS_CACHE, OURS_PACK = "dsctl cache", "dsctl pack"
FLOOR, COPY, UNTAR = "C loop, 2 threads", "cp -r", "tar --zstd -x"
TAR = "tar -c | zstd -1 -T2"


def cache(setting: Setting) -> Result:
    """Caching from a local store."""
    result = Result("cache", f"Cache {setting.many.files:,} files of 4-28 KB from a local store")
    with loop_ext4(MEMORY, 8 * GIB) as disk:
        tree = trees.make(disk / "source", setting.many)
        names = tree.write_list(disk / "names")
        archive, target, store = disk / "tree.tar.zst", disk / "target", disk / "store"
        shell(f"tar -C {tree.root} -c . | zstd -1 -T2 -q -o {archive}")
        ours = Dsctl(target)
        Dsctl(disk / "unused").run("pack", tree.root, store, "--name", "bench")

        def clean() -> None:
            remove(target)
            settle(disk)

        def untar() -> None:
            command("tar", "-C", target, "--zstd", "-xf", archive)

        contenders = [
            Contender(OURS_CACHE, lambda: ours.run("cache", store), clean=clean),
            Contender(FLOOR, lambda: command(setting.native, "create", names, target, "2"), clean=clean),
            Contender(COPY, lambda: command("cp", "-r", tree.root, target), clean=clean),
            Contender(UNTAR, untar, prepare=target.mkdir, clean=clean),
        ]
        result.seconds = race(contenders, setting.rounds, setting.say)
    result.ratio(OURS_CACHE, FLOOR, 2.0)
    result.ratio(OURS_CACHE, COPY, 0.6)
    result.ratio(OURS_CACHE, UNTAR, 0.5)
    return result


def pack(setting: Setting) -> Result:
    """Packing a directory into a new store."""
    result = Result("pack", f"Pack {setting.many.files:,} files of 4-28 KB")
    with loop_ext4(MEMORY, 8 * GIB) as disk:
        tree = trees.make(disk / "source", setting.many)
        archive, store = disk / "tree.tar.zst", disk / "store"
        ours = Dsctl(disk / "root")
        stored: dict[str, int] = {}

        def clean() -> None:
            for name, path in ((OURS_PACK, store), (TAR, archive)):
                if path.exists():
                    stored[name] = _bytes(path)
                remove(path)
            settle(disk)

        contenders = [
            Contender(OURS_PACK, lambda: ours.run("pack", tree.root, store, "--name", "bench"), clean=clean),
            Contender(TAR, lambda: shell(f"tar -C {tree.root} -c . | zstd -1 -T2 -q -o {archive}"), clean=clean),
        ]
        result.seconds = race(contenders, setting.rounds, setting.say)
    result.ratio(OURS_PACK, TAR, 1.15)
    result.note("stored bytes / tar | zstd's", stored[OURS_PACK] / stored[TAR], "x", 1.005)
    return result


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in (path / "bundles").rglob("*") if file.is_file())
