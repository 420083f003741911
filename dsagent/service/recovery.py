"""What every verb does first: brings the root into order after whatever happened since the last one."""

import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import sleep

from dsagent.core.errors import DsagentError, local_error
from dsagent.core.ports import CachedVersion
from dsagent.engine.check import check_tree
from dsagent.engine.crew import Crew
from dsagent.engine.manifests import read_manifest
from dsagent.service import records
from dsagent.service.node import Node, held, log
from dsagent.service.removal import empty_trash, remove, set_aside

# By then the kernel has written most of it back, and syncfs takes little time.
SYNC_AFTER = timedelta(seconds=40)


def recover(node: Node) -> None:
    """Makes catalog and disk agree, re-reads what may not have survived a crash, and syncs what was published a while
    ago. A root that cannot be written is left as it is: `Node` shows only what can be trusted.
    """
    recover_calmly(node, pause=_at_once)


def recover_calmly(node: Node, pause: Callable[[], None]) -> None:
    """`recover`, for who does it again and again beside other work: `pause` is called between short stretches."""
    if not os.access(node.versions, os.W_OK):
        return
    node.prepare()
    records.refresh(node, pause)
    unsynced = node.catalog.unsynced()
    mount = node.mount_token(str(node.root)) if unsynced else ""
    for version in unsynced:
        if version.mount != mount:
            _read_again(node, version)
    if any(v.mount == mount and node.clock.now() - v.published > SYNC_AFTER for v in unsynced):
        _sync(node, [version for version in unsynced if version.mount == mount])
    for folder in os.listdir(node.staging):
        if not (node.staging / folder / "data").exists():
            set_aside(node, folder)  # it was killed after its data were published, or has not begun
    empty_trash(node, wait=False)


def _at_once() -> None:
    pass


def _read_again(node: Node, version: CachedVersion) -> None:
    """Compares a version with its manifest; it becomes trusted, or goes."""
    with held(node.lock(f"check-{version.id}"), waiting=lambda: sleep(0.1)) as fd:
        if version not in node.catalog.versions():  # another process did it meanwhile
            return
        node.meter.start("check after a crash", str(version.dataset), version.bytes, version.files)
        store = node.manifest_store(version)
        with Crew(node.workers, node.open, node.meter.advance, inherit=(fd,)) as crew:
            try:
                manifest = read_manifest(store, version.version)
                bad = str(next(check_tree(str(node.data(version)), store, manifest, crew), ""))
            except DsagentError as error:
                bad = str(error)
        node.meter.stop()
        if not bad:
            _sync(node, [version])
            return
        log.warning("%s did not survive a crash (%s) and is removed", version.dataset, bad)
        with node.catalog.decide() as decision:
            remove(node, decision, [version])


def _sync(node: Node, versions: Sequence[CachedVersion]) -> None:
    try:
        node.sync(str(node.root))
        here = []
        for version in versions:
            with contextlib.suppress(FileNotFoundError):  # it was evicted meanwhile
                records.write_synced(node.folder(version))
                here.append(version.id)
        with node.catalog.decide() as decision:
            decision.mark_synced(here)
    except OSError as error:
        raise local_error("sync", str(node.root), error) from error
