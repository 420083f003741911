"""The catalog as a file: lost, broken, read-only, and used by many processes at once."""

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dsagent.adapters.sqlite_catalog import SqliteCatalog
from dsagent.core.errors import DsagentError, UnfitRoot
from dsagent.core.ports import Reservation
from dsagent.core.space import Space
from dsagent.service import leases, records
from dsagent.service.doctor import doctor
from dsagent.service.evict import evict
from dsagent.service.listing import ls
from dsagent.service.node import Node
from dsagent.service.recovery import recover
from tests.support.command import REPOSITORY
from tests.support.nodes import node_at, published
from tests.support.people import ordinary_user

COUNT = """
import sys
from pathlib import Path
from dsagent.adapters.sqlite_catalog import SqliteCatalog
from dsagent.core.ports import Reservation
from dsagent.core.space import Space

root = Path(sys.argv[1])
catalog = SqliteCatalog(root / "catalog.sqlite", root)
for _ in range(25):
    with catalog.decide() as decision:
        held = catalog.reservations()
        decision.reserve(Reservation("count", Space(held[0].space.bytes + 1 if held else 1, 0)))
"""

DIE = """
import os, signal, sys
from pathlib import Path
from dsagent.adapters.sqlite_catalog import SqliteCatalog

root = Path(sys.argv[1])
with SqliteCatalog(root / "catalog.sqlite", root).decide() as decision:
    decision.release("kept")
    decision.remove(sys.argv[2])
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def node(scratch: Path) -> Node:
    return node_at(scratch / "root")


def python(script: str, *arguments: str | Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], env=environment)


def catalog_file(node: Node) -> Path:
    return node.root / "catalog.sqlite"


def test_reading_makes_nothing(node: Node) -> None:
    assert node.catalog.versions() == []
    assert node.catalog.reservations() == []
    assert not node.root.exists()


def test_an_empty_file_reads_as_none(node: Node) -> None:
    version = published(node, "imgs")
    catalog_file(node).write_bytes(b"")
    assert node.catalog.versions() == [version]
    assert node.catalog.reservations() == []


def test_last_used_is_when_the_folder_was_touched(node: Node) -> None:
    version = published(node, "imgs")
    os.utime(node.folder(version), (1000, 1000))
    assert node.find("imgs").last_used.timestamp() == 1000
    node.used_now(version)
    assert node.find("imgs").last_used.timestamp() > 1000


def test_a_version_whose_folder_is_gone_is_not_listed_and_forgotten(node: Node) -> None:
    gone, kept = published(node, "imgs"), published(node, "coco")
    shutil.rmtree(node.folder(gone))
    assert node.catalog.versions() == [kept]
    with node.catalog.decide():
        pass
    with sqlite3.connect(catalog_file(node)) as connection:
        assert connection.execute("SELECT id FROM versions").fetchall() == [(kept.id,)]
    connection.close()


def test_deleting_the_catalog_loses_no_dataset(node: Node) -> None:
    versions = [published(node, "imgs"), published(node, "coco"), published(node, "imgs")]
    catalog_file(node).unlink()
    assert node.catalog.versions() == versions
    assert not catalog_file(node).exists()
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("f", Space(1, 1)))
    assert catalog_file(node).exists()
    assert node.catalog.versions() == versions


@pytest.mark.parametrize("content", [b"not a database" * 1000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_broken_catalog_is_said_and_made_anew(node: Node, content: bytes) -> None:
    version = published(node, "imgs")
    catalog_file(node).write_bytes(content)
    for use in (node.catalog.versions, node.catalog.reservations):
        with pytest.raises(UnfitRoot, match="doctor --rebuild"):
            use()
    with pytest.raises(UnfitRoot), node.catalog.decide():
        pass
    assert any(finding.status == "fail" for finding in doctor(node, rebuild=False))
    assert all(finding.status == "ok" for finding in doctor(node, rebuild=True))
    assert node.catalog.versions() == [version]


def test_a_page_that_was_overwritten_is_said_and_made_anew(node: Node) -> None:
    versions = [published(node, f"imgs-{number}") for number in range(40)]
    with catalog_file(node).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (catalog_file(node).stat().st_size - 4096))
    with pytest.raises(UnfitRoot):
        node_at(node.root).catalog.versions()  # the first one may have the pages in its memory
    records.rebuild(node)
    assert node.catalog.versions() == versions


def test_another_programs_database_is_not_touched(node: Node) -> None:
    node.prepare()
    with sqlite3.connect(catalog_file(node)) as connection:
        connection.execute("CREATE TABLE versions (theirs)")
    connection.close()
    before = catalog_file(node).read_bytes()
    with pytest.raises(UnfitRoot, match="not a catalog of dsagent"):
        node.catalog.versions()
    with pytest.raises(UnfitRoot), node.catalog.decide():
        pass
    assert catalog_file(node).read_bytes() == before


def test_a_newer_releases_catalog_is_not_touched(node: Node) -> None:
    published(node, "imgs")
    with sqlite3.connect(catalog_file(node)) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(UnfitRoot, match="format 2 is unknown"):
        node.catalog.versions()


def test_what_a_killed_flight_left_goes_and_what_it_published_stays(node: Node) -> None:
    whole, torn = published(node, "imgs"), published(node, "coco")
    shutil.rmtree(node.data(torn))
    catalog_file(node).unlink()
    records.refresh(node, lambda: None)
    assert node.catalog.versions() == [whole]
    assert not node.folder(torn).parent.exists()
    assert [path.name.partition(".")[0] for path in node.trash.iterdir()] == [torn.id]


def test_a_version_that_only_the_disk_has_is_found_again(node: Node) -> None:
    version = published(node, "imgs")
    with node.catalog.decide() as decision:
        decision.remove(version.id)
    assert node.catalog.versions() == []
    assert [info.version for info in ls(node)] == [version.version]
    assert node.catalog.versions() == [version]


def test_a_damaged_record_is_no_version_and_is_not_deleted(node: Node) -> None:
    version = published(node, "imgs")
    record = node.folder(version) / "manifest" / "record.json"
    record.write_bytes(record.read_bytes().replace(b'"files":1', b'"files":2'))
    catalog_file(node).unlink()
    recover(node)
    assert node.catalog.versions() == []
    assert node.data(version).exists()
    assert any("no valid record" in finding.detail for finding in doctor(node, rebuild=False))


def test_a_record_says_all_that_the_catalog_does(node: Node) -> None:
    version = published(node, "imgs")
    assert records.read_record(node.folder(version)) == node.catalog.versions()[0]
    records.write_synced(node.folder(version))
    found = records.read_record(node.folder(version))
    assert found is not None
    assert found.synced


def test_processes_decide_one_at_a_time(node: Node) -> None:
    deciders = [python(COUNT, node.root) for _ in range(4)]
    assert [decider.wait() for decider in deciders] == [0] * 4
    assert node.catalog.reservations() == [Reservation("count", Space(100, 0))]


def test_a_decider_that_is_killed_has_decided_nothing(node: Node) -> None:
    version = published(node, "imgs")
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("kept", Space(1, 1)))
    assert python(DIE, node.root, version.id).wait() == -9
    assert node.catalog.versions() == [version]
    assert node.catalog.reservations() == [Reservation("kept", Space(1, 1))]
    evict(node, "imgs", force=False, dry_run=False)
    assert node.catalog.versions() == []


def test_a_decision_that_writes_nothing_does_not_touch_the_file(node: Node) -> None:
    published(node, "imgs")
    before = catalog_file(node).stat()
    with node.catalog.decide():
        pass
    after = catalog_file(node).stat()
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)


READ = """
import sys
from pathlib import Path
from dsagent.core.errors import NotPermitted
from dsagent.service import leases
from dsagent.service.evict import evict
from dsagent.service.listing import df, ls, path
from tests.support.nodes import node_at

node = node_at(Path(sys.argv[1]))
assert [info.dataset for info in ls(node)] == ["imgs"]
assert path(node, "imgs") == str(node.data(node.find("imgs")))
assert df(node).datasets == 1
assert [info.owner for info in leases.list_leases(node)] == ["me"]
for verb in (lambda: evict(node, "imgs", False, False), lambda: leases.add(node, "imgs", "you", 60)):
    try:
        verb()
    except NotPermitted:
        continue
    except Exception as error:
        sys.exit(f"not NotPermitted: {error!r}")
    sys.exit("it was permitted")
"""


@pytest.mark.needs("root", "setpriv", "mount")
def test_another_user_can_read(scratch: Path) -> None:
    node = node_at(scratch / "root")
    version = published(node, "imgs")
    leases.add(node, "imgs", "me", 3600)
    with node.catalog.decide() as decision:  # the other user's process sees the root through another mount
        decision.add(version._replace(synced=True))
    done = as_other_user(READ, node.root)
    assert done.returncode == 0, done.stderr


def as_other_user(script: str, root: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    with ordinary_user() as prefix:
        command = [*prefix, sys.executable, "-c", script, str(root)]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


@pytest.mark.needs("root", "setpriv", "mount")
def test_a_root_that_another_user_cannot_enter_is_said(scratch: Path) -> None:
    node = node_at(scratch / "root")
    published(node, "imgs")
    node.root.chmod(0o700)
    done = as_other_user(READ, node.root)
    assert "NotPermitted: cannot" in done.stderr, done.stderr


def test_a_root_below_a_file_is_said(scratch: Path) -> None:
    (scratch / "file").write_text("")
    root = scratch / "file" / "root"
    catalog = SqliteCatalog(root / "catalog.sqlite", root)
    with pytest.raises(DsagentError, match="cannot list"):
        catalog.versions()
    with pytest.raises(DsagentError, match="cannot make"), catalog.decide():
        pass


def test_a_reader_may_look_in_the_moment_in_which_the_catalog_is_made(scratch: Path) -> None:
    """It sees no catalog or a whole one: 60 new catalogs, each read by three threads while a fourth makes it."""
    for number in range(60):
        root = scratch / f"root{number}"
        catalog = SqliteCatalog(root / "catalog.sqlite", root)
        with ThreadPoolExecutor(4) as threads:
            made = threads.submit(_decide, catalog)

            def read(catalog: SqliteCatalog = catalog, made: "Future[None]" = made) -> None:
                while not made.done():
                    assert catalog.versions() == []

            for reader in [threads.submit(read) for _ in range(3)]:
                reader.result()
            made.result()


def _decide(catalog: SqliteCatalog) -> None:
    with catalog.decide():
        pass
