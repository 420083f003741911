"""Making a version visible: whole, in one rename."""

import os
from pathlib import Path

from dsagent.core.errors import local_error
from dsagent.core.layout import stamps_key
from dsagent.core.manifest import Manifest
from dsagent.core.ports import CachedVersion
from dsagent.core.space import Space
from dsagent.engine.fetch import Fetched
from dsagent.engine.staging import Staging
from dsagent.engine.tree import Tree
from dsagent.service.node import Node, new_id, step
from dsagent.service.origins import Origin
from dsagent.service.records import seal_data, write_record


def publish(
    node: Node,
    flight: str,
    staging: Staging,
    origin: Origin,
    manifest: Manifest,
    fetched: Fetched,
    donor: CachedVersion | None,
) -> CachedVersion:
    """Publishes what a flight has brought and verified.

    The rename of `data` into its folder is what makes the version exist; its record lies there before, so that the
    catalog can be made again from the disk. All of it happens inside one decision.
    """
    shares = donor is not None and fetched.reused_files > 0
    now = node.clock.now()
    try:
        directories = _seal(staging.data, fetched)
        version = CachedVersion(
            id=new_id(),
            dataset=origin.key,
            version=manifest.version,
            source=origin.url,
            fingerprint=origin.fingerprint,
            files=manifest.totals.files,
            bytes=manifest.totals.bytes,
            allocated=Space(
                fetched.written_bytes + directories,
                fetched.written_files + manifest.totals.inodes - manifest.totals.files,
            ),
            published=now,
            last_used=now,
            mount=node.mount_token(str(node.root)),
            shares=shares,
        )
        folder = node.folder(version)
        with node.catalog.decide() as decision:
            folder.mkdir(parents=True, mode=0o755)
            os.rename(staging.manifest, folder / "manifest")
            write_record(folder, version)
            os.rename(staging.data, folder / "data")
            seal_data(folder)
            step("record")
            decision.add(version)
            if shares and donor:
                shared = _as_it_is(node, donor)._replace(shares=True)
                decision.add(shared)
                write_record(node.folder(donor), shared)
            decision.release(flight)
        staging.remove()
    except OSError as error:
        raise local_error("publish", str(origin.key), error) from error
    return version


def renew_stamps(
    node: Node, version: CachedVersion, flight: str, staging: Staging, source: str, fingerprint: str
) -> CachedVersion:
    """Remembers the newer stamps of a source whose content turned out to be a version that is here already."""
    key = stamps_key(version.version, source)
    store = node.manifest_store(version)
    newer = node.open.local_store(str(staging.manifest)).read(key)
    with node.catalog.decide() as decision:
        renewed = _as_it_is(node, version)._replace(source=source, fingerprint=fingerprint)
        store.replace(key, newer, store.find(key))
        write_record(node.folder(version), renewed)
        decision.add(renewed)
        decision.release(flight)
    staging.remove()
    return renewed


def _as_it_is(node: Node, version: CachedVersion) -> CachedVersion:
    """Inside a decision: a version as the catalog has it now, perhaps the heir of one that was evicted since."""
    return next((now for now in node.catalog.versions(version.dataset) if now.id == version.id), version)


def _seal(data: Path, fetched: Fetched) -> int:
    """Makes all directories read-only; returns the bytes that directories take on the disk."""
    size = os.stat(data).st_blocks * 512
    with Tree(str(data)) as tree:
        for path in fetched.directories:
            size += tree.seal_directory(path)
    return size
