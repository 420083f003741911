"""`ls`, `path` and `df`: what is here, where it is, and how much room there is."""

from dsagent.core.datasets import version_text
from dsagent.core.errors import BadStore
from dsagent.core.layout import MANIFESTS, POINTER_KEY, manifest_key
from dsagent.core.manifest import Manifest
from dsagent.core.ports import Location, Store
from dsagent.core.space import Space
from dsagent.engine.crew import Opener
from dsagent.engine.manifests import read_manifest
from dsagent.service.leases import leases_by_version
from dsagent.service.node import Node
from dsagent.service.origins import current_version, store_dataset
from dsagent.service.recovery import recover
from dsagent.service.results import CachedInfo, DiskInfo, StoredInfo
from dsagent.service.space import headroom


def ls(node: Node) -> list[CachedInfo]:
    """The versions on this node, by dataset, newest first; empty if there is no root yet."""
    recover(node)
    leases = leases_by_version(node)
    found = [
        CachedInfo(
            dataset=str(version.dataset),
            version=version.version,
            files=version.files,
            bytes=version.bytes,
            allocated_bytes=version.allocated.bytes,
            source=version.source,
            published=version.published,
            last_used=version.last_used,
            leases=leases.get(version.id, []),
            path=str(node.data(version)),
        )
        for version in reversed(node.shown())
    ]
    return sorted(found, key=lambda info: info.dataset)


def path(node: Node, reference: str) -> str:
    """Where `name` (its newest version) or `name@version` lies; counts as a use. Raises NotCached."""
    recover(node)
    version = node.find(reference)
    node.used_now(version)
    return str(node.data(version))


def df(node: Node) -> DiskInfo:
    """The root's space."""
    disk, versions = node.disk.measure(), node.catalog.versions()
    used = sum((version.allocated for version in versions), Space())
    reserved = sum((reservation.space for reservation in node.catalog.reservations()), Space())
    free = headroom(node)
    limited = disk.total.inodes > 0
    return DiskInfo(
        root=str(node.root),
        filesystem=disk.kind,
        capacity=max(0, free.bytes) + used.bytes + reserved.bytes,
        used=used.bytes,
        reserved=reserved.bytes,
        free=max(0, free.bytes),
        total=disk.total.bytes,
        inodes_used=used.inodes,
        inodes_reserved=reserved.inodes,
        inodes_free=max(0, free.inodes) if limited else 0,
        inodes_total=disk.total.inodes,
        datasets=len({version.dataset for version in versions}),
    )


def ls_store(opener: Opener, location: Location) -> list[StoredInfo]:
    """The versions in a store, newest first; raises BadStore if it is none or has a manifest that is not valid."""
    open_store(opener, location)
    store = opener.store(location)
    current = current_version(store) if store.find(POINTER_KEY) is not None else ""
    return [_stored(manifest, current) for manifest in manifests_by_age(store)]


def manifests_by_age(store: Store) -> list[Manifest]:
    """The manifests of all versions in a store, newest first; raises BadStore for one that is not valid."""
    written = {found.key: found.modified for found in store.entries(MANIFESTS)}
    manifests = [read_manifest(store, version) for version in stored_versions(store)]
    return sorted(manifests, key=lambda m: (m.created, written.get(manifest_key(m.version), 0.0)), reverse=True)


def open_store(opener: Opener, location: Location) -> str:
    """The name of the dataset whose versions a store holds; raises BadStore if there is no store."""
    dataset = store_dataset(opener, location)
    if dataset is None:
        raise BadStore("read", location.url, "it is no store", "dsctl pack SOURCE STORE makes one")
    return dataset


def stored_versions(store: Store) -> list[str]:
    """The versions of which a store has a manifest; raises BadStore for a manifest with an impossible name."""
    versions = []
    for found in store.entries(MANIFESTS):
        name = found.key.removeprefix(MANIFESTS)
        try:
            versions.append(version_text(bytes.fromhex(name.removesuffix(".json"))))
        except ValueError as error:
            subject = f"{store.location.url}/{found.key}"
            raise BadStore("list", subject, "it is not named like a manifest", "remove it") from error
    return versions


def _stored(manifest: Manifest, current: str) -> StoredInfo:
    return StoredInfo(
        dataset=manifest.dataset,
        version=manifest.version,
        files=manifest.totals.files,
        bytes=manifest.totals.bytes,
        bundles=len(manifest.bundles),
        stored_bytes=sum(bundle.stored for bundle in manifest.bundles),
        created=manifest.created,
        current=manifest.version == current,
    )
