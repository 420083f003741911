"""Storage that fails, fills up or refuses: each with its exit code, nothing published, and the next run succeeds."""

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import trees
from tests.support.command import Dsctl
from tests.support.devices import ext4
from tests.support.faults import Fault, Faulty, build

FILES = 600  # more than the number below which no workers are started
FULL = {errno.EIO: 1, errno.ENOSPC: 4, errno.EDQUOT: 4}


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def source(scratch: Path) -> Path:
    return _make_tree(scratch)


def _make_tree(folder: Path) -> Path:
    trees.make_files(folder / "tree", FILES, directories=6)
    return folder / "tree"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of what `source` has."""
    folder = tmp_path_factory.mktemp("packed")
    Dsctl(folder / "root").ok("pack", _make_tree(folder), folder / "store", "--files-per-bundle", "200")
    return folder / "store"


@pytest.fixture
def store(scratch: Path, packed: Path) -> Path:
    return Path(shutil.copytree(packed, scratch / "store"))


def _assert_recovers(dsctl: Dsctl, where: Path, source: Path) -> None:
    """Nothing was published; the same command succeeds when the fault is gone."""
    dsctl.assert_nothing_published()
    cached = replace(dsctl, environment={"DSAGENT_WORKERS": "1", **dsctl.environment}).ok("cache", where)
    trees.assert_published(Path(cached["path"]), trees.look(source))
    assert list((dsctl.root / "staging").iterdir()) == []


@pytest.mark.needs("cc")
@pytest.mark.parametrize("call", ["create", "write", "mkdir"])
@pytest.mark.parametrize("error", FULL)
def test_writing_a_file_fails_midway(
    scratch: Path, shim: Path, source: Path, store: Path, call: str, error: int
) -> None:
    dsctl = Dsctl(scratch / "root")
    faulty = Faulty(dsctl, shim, Fault(call, "/data/d003", error, first=1 if call == "mkdir" else 40))
    problem = faulty.dsctl.fails(FULL[error], "cache", store)
    assert os.strerror(error) in problem["detail"] or FULL[error] == 4, problem
    assert "d003" in problem["subject"], problem
    assert faulty.met
    _assert_recovers(dsctl, store, source)


@pytest.mark.needs("cc")
@pytest.mark.parametrize("error", FULL)
def test_writing_a_file_from_a_directory_fails_midway(scratch: Path, shim: Path, source: Path, error: int) -> None:
    dsctl = Dsctl(scratch / "root")
    faulty = Faulty(dsctl, shim, Fault("write", "/data/d003", error, first=40))
    faulty.dsctl.fails(FULL[error], "cache", source)
    _assert_recovers(dsctl, source, source)


@pytest.mark.needs("cc")
@pytest.mark.parametrize(
    ("call", "path", "code"),
    [
        ("rename", "/versions/", 1),
        ("rename", "/data", 1),
        ("write", "/journal", 1),
        ("create", "/manifest/", 10),
        ("create", "record.json", 1),
    ],
)
def test_the_root_fails_around_the_fetch(
    scratch: Path, shim: Path, source: Path, store: Path, call: str, path: str, code: int
) -> None:
    dsctl = Dsctl(scratch / "root")
    faulty = Faulty(dsctl, shim, Fault(call, path, errno.EIO))
    faulty.dsctl.fails(code, "cache", store)
    assert faulty.met
    _assert_recovers(dsctl, store, source)


@pytest.mark.needs("cc")
@pytest.mark.parametrize("verb", ["cache", "pack"])
def test_one_file_of_the_source_cannot_be_read(scratch: Path, shim: Path, source: Path, verb: str) -> None:
    dsctl = Dsctl(scratch / "root")
    faulty = Faulty(dsctl, shim, Fault("read", "/tree/d003/f000303", errno.EIO))
    problem = faulty.dsctl.fails(3, verb, source, *([scratch / "store"] if verb == "pack" else []))
    assert problem["paths"] == ["d003/f000303"]
    assert os.strerror(errno.EIO) in problem["detail"]
    if verb == "pack":
        assert not list(scratch.glob("store/manifests/*"))
        dsctl.ok("pack", source, scratch / "store")
        assert dsctl.run("store", "check", scratch / "store").code == 0
    else:
        _assert_recovers(dsctl, source, source)


@pytest.mark.needs("cc")
def test_a_bundle_cannot_be_read(scratch: Path, shim: Path, source: Path, store: Path) -> None:
    dsctl = Dsctl(scratch / "root")
    faulty = Faulty(dsctl, shim, Fault("read", "/store/bundles/", errno.EIO, first=2))
    problem = faulty.dsctl.fails(10, "cache", store)
    assert os.strerror(errno.EIO) in problem["detail"]
    _assert_recovers(dsctl, store, source)


@pytest.mark.needs("cc")
def test_a_bundle_that_is_read_wrong_once_is_read_again(scratch: Path, shim: Path, source: Path, store: Path) -> None:
    """A passing error of the storage is no reason to stop, as long as what is read at last is right."""
    dsctl = Dsctl(scratch / "root")
    bundle = next(store.glob("bundles/*"))
    data = bytearray(bundle.read_bytes())
    data[100] ^= 1
    bundle.write_bytes(data)
    dsctl.fails(5, "cache", store)
    dsctl.assert_nothing_published()
    data[100] ^= 1
    bundle.write_bytes(data)
    _assert_recovers(dsctl, store, source)


@pytest.mark.needs("cc")
@pytest.mark.parametrize("call", ["write", "link", "sync"])
@pytest.mark.parametrize("error", FULL)
def test_a_store_that_cannot_be_written(scratch: Path, shim: Path, source: Path, call: str, error: int) -> None:
    dsctl, store = Dsctl(scratch / "root"), scratch / "store"
    faulty = Faulty(dsctl, shim, Fault(call, str(store), error, first=3))
    faulty.dsctl.fails(10 if error == errno.EIO else 4, "pack", source, store)
    assert faulty.met
    if (store / "dsagent-store.json").exists():
        assert dsctl.ok("ls", store) == []
    packed = dsctl.ok("pack", source, store)
    assert dsctl.run("store", "check", store).code == 0
    assert [row["version"] for row in dsctl.ok("ls", store)] == [packed["version"]]
    assert list(store.glob("tmp/*")) == []


@pytest.mark.needs("cc")
@pytest.mark.parametrize("error", [errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EIO])
def test_what_cannot_be_linked_is_fetched(scratch: Path, shim: Path, source: Path, error: int) -> None:
    dsctl = Dsctl(scratch / "root")
    dsctl.ok("cache", source)
    (source / "d000" / "f000000").write_bytes(b"changed")
    faulty = Faulty(dsctl, shim, Fault("link", "/data/d00", error))
    updated = faulty.dsctl.ok("cache", source)
    assert faulty.met
    assert (updated["outcome"], updated["reused_files"]) == ("updated", 0)
    trees.assert_published(Path(updated["path"]), trees.look(source))


def _fill(folder: Path) -> Path:
    """Takes all the space that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for piece in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue
    return ballast


def _take_inodes(folder: Path) -> Path:
    """Takes all the inodes that are left."""
    ballast = folder / "inodes"
    ballast.mkdir()
    try:
        for number in range(1 << 20):
            (ballast / str(number)).touch()
    except OSError:
        return ballast
    raise AssertionError


@pytest.mark.needs("root", "loop", "mount", "ext4")
@pytest.mark.parametrize("take", [_fill, _take_inodes])
def test_a_full_filesystem_while_it_is_written(
    scratch: Path, store: Path, source: Path, take: Callable[[Path], Path]
) -> None:
    """Another program takes, between the promise and the writing, what was promised."""
    with ext4(scratch / "image", scratch / "disk", 48 << 20, "-N", "4000") as disk:
        dsctl = Dsctl(disk / "root", {"DSAGENT_WORKERS": "1"})
        process = dsctl.start("-v", "cache", store, "-o", "json")
        assert process.stderr is not None
        lines = iter(process.stderr.readline, b"")
        ballast = None
        for line in lines:
            if b"step: stage" in line:
                process.send_signal(signal.SIGSTOP)
                ballast = take(disk)
                process.send_signal(signal.SIGCONT)
            last = line
        assert ballast is not None
        assert process.wait() == 4, last
        process.communicate()
        assert dsctl.visible() == {}
        trees.remove(ballast) if ballast.is_dir() else ballast.unlink()
        _assert_recovers(dsctl, store, source)


@pytest.mark.needs("root", "loop", "mount", "ext4")
def test_one_directory_larger_than_ext4_can_hold(scratch: Path) -> None:
    """Said before the first byte is written."""
    source = scratch / "tree"
    source.mkdir()
    here = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(50_000):
        os.close(os.open(f"{number:0>250}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=here))
    os.close(here)
    with ext4(scratch / "image", scratch / "disk", 256 << 20, "-b", "1024", "-N", "80000") as disk:
        dsctl = Dsctl(disk / "root")
        done = dsctl.run("-v", "cache", source)
        assert done.code == 4, done
        assert "directories" in done.err
        assert "step: fetch" not in done.err
        assert not list(dsctl.root.glob("staging/*/data/*"))
        dsctl.assert_nothing_published()


@pytest.mark.needs("root", "loop", "mount", "ext4")
def test_the_rule_of_one_and_a_fifth(scratch: Path) -> None:
    """In bytes and in inodes: what does not fit 1.2 times is refused before the first byte, and nothing is evicted;
    what fits after evicting takes the place of what was unused longest.
    """
    sets = {}
    for name, files, size in (("one", 3, 4 << 20), ("two", 3, 4 << 20), ("three", 3, 4 << 20), ("huge", 10, 4 << 20)):
        sets[name] = scratch / name
        sets[name].mkdir()
        for number in range(files):
            (sets[name] / str(number)).write_bytes(os.urandom(size))
    with ext4(scratch / "image", scratch / "disk", 64 << 20, "-N", "600") as disk:
        dsctl = Dsctl(disk / "root", {"DSAGENT_KEEP_FREE": "20MiB"})
        for name in ("one", "two"):
            dsctl.ok("cache", sets[name])
        dsctl.ok("cache", sets["one"])  # now "two" is the one that was unused longest
        problem = dsctl.fails(4, "cache", sets["huge"])
        assert "1.2 times" in problem["detail"]
        assert {name.partition("@")[0] for name in dsctl.visible()} == {"one", "two"}
        result = dsctl.ok("cache", sets["three"])
        assert [one["dataset"] for one in result["evicted"]] == ["two"]
        assert {name.partition("@")[0] for name in dsctl.visible()} == {"one", "three"}
        many = scratch / "many"
        trees.make_files(many, 560, directories=2, largest=10)
        problem = dsctl.fails(4, "cache", many)
        assert "inodes" in problem["detail"]
        assert {name.partition("@")[0] for name in dsctl.visible()} == {"one", "three"}
        for data in dsctl.visible().values():
            assert len(trees.look(data)) == 3


@pytest.mark.needs("root", "loop", "mount", "ext4")
def test_two_processes_are_never_promised_the_same_bytes(scratch: Path) -> None:
    """Each of the two fits, both do not: one is refused, or evicts what the other has finished; nothing runs full."""
    for name in ("one", "two"):
        trees.make_files(scratch / name, 300, seed=len(name) + ord(name[0]), directories=3, largest=100_000)
    with ext4(scratch / "image", scratch / "disk", 40 << 20, "-N", "3000") as disk:
        dsctl = Dsctl(disk / "root", {"DSAGENT_KEEP_FREE": "4MiB", "DSAGENT_WORKERS": "1"})
        both = [dsctl.start("cache", scratch / name, "-o", "json") for name in ("one", "two")]
        ended = [(*process.communicate(), process.returncode) for process in both]
        assert 0 in (code for _, _, code in ended), ended
        for _, err, code in ended:
            assert code in (0, 4), err
            assert b"no space left" not in err, err
        for name, data in dsctl.visible().items():
            trees.assert_published(data, trees.look(scratch / name.partition("@")[0]))


@pytest.mark.needs("root", "loop", "mount", "ext4")
def test_a_read_only_root(scratch: Path, source: Path, store: Path) -> None:
    """What is there can be listed, found, verified and asked for again; nothing else."""
    with ext4(scratch / "image", scratch / "disk", 32 << 20) as disk:
        dsctl = Dsctl(disk / "root", {"DSAGENT_KEEP_FREE": "1MiB"})
        path = dsctl.ok("cache", store)["path"]
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert [str(data) for data in dsctl.visible().values()] == [path]
        assert dsctl.run("path", "tree").out.decode().strip() == path
        assert dsctl.ok("verify", "tree")["bad"] == []
        (source / "new").touch()
        dsctl.fails(11, "cache", source, "--name", "other")
        dsctl.fails(11, "evict", "tree")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        dsctl.ok("evict", "tree")


@pytest.mark.needs("root", "loop", "mount", "ext4")
def test_a_root_that_was_never_written_can_be_read_only(scratch: Path, source: Path) -> None:
    with ext4(scratch / "image", scratch / "disk", 32 << 20) as disk:
        dsctl = Dsctl(disk / "root")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert dsctl.ok("ls") == []
        dsctl.fails(11, "cache", source)
