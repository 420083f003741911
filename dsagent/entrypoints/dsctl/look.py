"""dsctl ls, path, df and diff: what is where."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from dsagent.core.quantities import human_count, human_size
from dsagent.entrypoints.documents import as_document
from dsagent.entrypoints.dsctl.options import StorageOption, example
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.render import Output, View, ago, pairs, short, table
from dsagent.entrypoints.dsctl.session import Session, location
from dsagent.service.results import CachedInfo, DiffResult, DiskInfo, LeaseInfo, StoredInfo


def ls(
    session: Session,
    store: Annotated[str | None, Argument(metavar="STORE", help="List this store's versions.")] = None,
    all_nodes: Annotated[bool, Option(help="List what the nodes of the cluster of your kubeconfig have.")] = False,
    storage_option: StorageOption = None,
) -> None:
    """List the datasets on this node, or the versions in a store."""
    if all_nodes:
        from dsagent.entrypoints.dsctl.cluster import list_nodes  # noqa: PLC0415 - most runs have no cluster

        session.show(list_nodes())
        return
    if store is None:
        cached = session.verbs.ls()
        session.show(View(cached, lambda wide: _cached(cached, wide), [f"{c.dataset}@{c.version}" for c in cached]))
        return
    from dsagent.service.listing import ls_store  # noqa: PLC0415 - slow to import

    where = location(store, storage_option)
    stored = ls_store(session.opener, where)
    # The fields that every listing has; a store knows neither uses nor leases.
    rows = [{**as_document(s), "last_used": None, "leases": [], "path": where.url} for s in stored]
    session.show(View(rows, lambda wide: _stored(stored, wide), [f"{s.dataset}@{s.version}" for s in stored]))


def _cached(found: Sequence[CachedInfo], wide: bool) -> list[str]:
    now = datetime.now(UTC)
    headers = ["DATASET", "VERSION", "FILES", "SIZE", "LAST USED", "LEASES"]
    rows = [
        [
            info.dataset,
            info.version if wide else short(info.version),
            human_count(info.files),
            human_size(info.bytes),
            ago(info.last_used, now),
            ", ".join(_lease(lease, now) for lease in info.leases) if wide else str(len(info.leases)),
            *((human_size(info.allocated_bytes), info.source, info.path) if wide else ()),
        ]
        for info in found
    ]
    return table([*headers, "ON DISK", "SOURCE", "PATH"] if wide else headers, rows)


def _lease(lease: LeaseInfo, now: datetime) -> str:
    from dsagent.core.quantities import human_duration  # noqa: PLC0415

    if lease.expires is None:
        return lease.owner
    return f"{lease.owner} for {human_duration((lease.expires - now).total_seconds())}"


def _stored(found: Sequence[StoredInfo], wide: bool) -> list[str]:
    headers = ["DATASET", "VERSION", "FILES", "SIZE", "BUNDLES", "STORED", "CREATED", "CURRENT"]
    rows = [
        [
            info.dataset,
            info.version if wide else short(info.version),
            human_count(info.files),
            human_size(info.bytes),
            str(info.bundles),
            human_size(info.stored_bytes),
            info.created,
            "yes" if info.current else "",
        ]
        for info in found
    ]
    return table(headers, rows)


def path(
    session: Session,
    dataset: Annotated[str, Argument(metavar="NAME", help="A dataset, or NAME@VERSION.")],
) -> None:
    """Say where a dataset is."""
    where = session.verbs.path(dataset)
    if session.output in (Output.TABLE, Output.WIDE):
        session.show(View(None, lambda _: [where]))
        return
    info = next(info for info in session.verbs.ls() if info.path == where)
    session.show(View(info, lambda _: [where], [f"{info.dataset}@{info.version}"]))


def df(session: Session) -> None:
    """Say how much room there is."""
    info = session.verbs.df()
    inodes = {
        "used": info.inodes_used,
        "reserved": info.inodes_reserved,
        "free": info.inodes_free,
        "total": info.inodes_total,
    }
    flat = {name: value for name, value in as_document(info).items() if not name.startswith("inodes_")}
    session.show(View({**flat, "inodes": inodes}, lambda _: _space(info)))


def _space(info: DiskInfo) -> list[str]:
    rows = [
        ["bytes", *map(human_size, (info.capacity, info.used, info.reserved, info.free, info.total))],
        [
            "inodes",
            "",
            human_count(info.inodes_used),
            human_count(info.inodes_reserved),
            *(map(human_count, (info.inodes_free, info.inodes_total)) if info.inodes_total else ("no limit", "")),
        ],
    ]
    return [
        *pairs({"root": info.root, "filesystem": info.filesystem, "datasets": str(info.datasets)}),
        *table(["", "CAPACITY", "USED", "RESERVED", "FREE", "FILESYSTEM"], rows),
    ]


def diff(
    session: Session,
    a: Annotated[str, Argument(metavar="A", help="A source, a store or a cached dataset.")],
    b: Annotated[str, Argument(metavar="B", help="Another one.")],
    storage_option: StorageOption = None,
) -> None:
    """Say which files differ between two sources, stores or cached datasets."""
    from dsagent.service.diff import Side  # noqa: PLC0415 - slow to import

    result = session.verbs.diff(*(Side(one, location(one, storage_option).options) for one in (a, b)))
    session.show(View(result, lambda _: _differences(result)))


def _differences(result: DiffResult) -> list[str]:
    from dsagent.core.errors import show_path  # noqa: PLC0415

    marked = [("+", result.added), ("-", result.removed), ("~", result.changed)]
    lines = [f"{mark} {show_path(path)}" for mark, paths in marked for path in paths]
    return [
        *lines,
        f"{len(result.added)} added, {len(result.removed)} removed, {len(result.changed)} changed",
    ]


EXAMPLES = {
    "ls": example("dsctl ls -o wide", "dsctl ls s3://stores/imagenet"),
    "path": example("ls $(dsctl path imagenet)"),
    "df": example("dsctl df -o json"),
    "diff": example("dsctl diff /mnt/nfs/imagenet imagenet"),
}
