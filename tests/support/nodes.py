"""Caches for tests: on real folders, with a clock and a disk of the test's own where it wants them."""

import os
from dataclasses import replace
from pathlib import Path

from dsagent.adapters.linux import mount_token
from dsagent.adapters.sqlite_catalog import SqliteCatalog
from dsagent.core.datasets import LOCAL_NAMESPACE, DatasetKey
from dsagent.core.ports import CachedVersion, Clock, DiskSpace
from dsagent.core.space import Space
from dsagent.service.node import Node, new_id
from dsagent.service.records import write_record
from dsagent.service.settings import Flags, load_settings
from dsagent.wiring import local_node

BLOCK = 4096
ONE_FILE = Space(BLOCK, 1)


class NoMeter:
    """Shows nothing."""

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None: ...

    def advance(self, size: int, files: int) -> None: ...

    def stop(self) -> None: ...


def node_at(root: Path, clock: Clock | None = None, disk: DiskSpace | None = None) -> Node:
    """The cache below `root` as dsctl would have it, but that it leaves nothing free."""
    node = local_node(load_settings(Flags(root=root, keep_free=0, workers=2), {}), NoMeter())
    return replace(
        node, clock=clock or node.clock, disk=disk or node.disk, catalog=SqliteCatalog(root / "catalog.sqlite", root)
    )


def published(node: Node, name: str, allocated: Space = ONE_FILE, used: float | None = None) -> CachedVersion:
    """Publishes a version of one file by hand; `used`: when it was used last, in Unix time."""
    node.prepare()
    now = node.clock.now()
    version = CachedVersion(
        id=new_id(),
        dataset=DatasetKey(LOCAL_NAMESPACE, name),
        version=f"xxh3:{os.urandom(16).hex()}",
        source=f"/sources/{name}",
        fingerprint="",
        files=1,
        bytes=allocated.bytes,
        allocated=allocated,
        published=now,
        last_used=now,
        mount=mount_token(str(node.root)),
    )
    folder = node.folder(version)
    with node.catalog.decide() as decision:
        (folder / "manifest").mkdir(parents=True)
        (folder / "data").mkdir()
        (folder / "data" / "file").write_text(name)
        write_record(folder, version)
        decision.add(version)
    if used is not None:
        os.utime(folder, (used, used))
    return node.find(f"{name}@{version.version}")
