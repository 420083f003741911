"""dsctl pack and dsctl cache."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from dsagent.core.eviction import Evicted
from dsagent.core.quantities import human_count, human_duration, human_size, parse_duration, parse_size
from dsagent.entrypoints.dsctl.options import DryRun, SkipSpecial, StorageOption, example
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.render import View, pairs
from dsagent.entrypoints.dsctl.session import Session, location
from dsagent.service.results import CachePlan, CacheResult, PackResult


class Check(StrEnum):
    """How a source is compared with what is here."""

    FINGERPRINT = "fingerprint"
    CONTENT = "content"
    NEVER = "never"


def pack(  # noqa: PLR0913 - one parameter an option
    session: Session,
    source: Annotated[str, Argument(metavar="SOURCE", help="Path or URL of a tree of files.")],
    store: Annotated[str, Argument(metavar="STORE", help="Path or URL of the store.")],
    *,
    name: Annotated[str | None, Option(help="The dataset's name [default: the source's last part].")] = None,
    files_per_bundle: Annotated[int, Option(least=1, help="Most files in a bundle.")] = 50_000,
    bundle_bytes: Annotated[str, Option(metavar="SIZE", help="About the most bytes in a bundle.")] = "1GiB",
    level: Annotated[int, Option(least=1, most=19, help="The level of zstd compression.")] = 1,
    workers: Annotated[int | None, Option(least=1, help="Worker processes [default: one a CPU].")] = None,
    skip_special: SkipSpecial = False,
    storage_option: StorageOption = None,
) -> None:
    """Pack a tree into a store; a second run packs only what changed."""
    from dsagent.engine.pack import PackOptions  # noqa: PLC0415 - slow to import
    from dsagent.service.pack import PackRequest, pack  # noqa: PLC0415
    from dsagent.wiring import default_workers  # noqa: PLC0415

    options = PackOptions(files_per_bundle, parse_size(bundle_bytes), level)
    request = PackRequest(
        location(source, storage_option), location(store, storage_option), name, options, skip_special
    )
    result = pack(session.opener, session.meter, workers or default_workers(), request)
    _say_skipped(session, result.skipped_special)
    session.show(View(result, lambda _: _packed(result), [f"{result.dataset}@{result.version}"]))


def _packed(result: PackResult) -> list[str]:
    return pairs(
        {
            "dataset": result.dataset,
            "version": result.version,
            "files": f"{human_count(result.files)} ({human_size(result.bytes)})",
            "bundles": f"{result.bundles} ({human_size(result.stored_bytes)}), {result.new_bundles} of them new",
            "time": human_duration(result.seconds),
        }
    )


def cache(  # noqa: PLR0913 - one parameter an option
    session: Session,
    source: Annotated[str, Argument(metavar="SOURCE_OR_STORE", help="Path or URL.")],
    *,
    name: Annotated[
        str | None, Option(help="The dataset's name [default: the store's, or the source's last part].")
    ] = None,
    version: Annotated[str | None, Option(help="This version and no other.")] = None,
    check: Annotated[
        Check, Option(help="Compare the source by its listing, by reading all of it, or not at all.")
    ] = Check.FINGERPRINT,
    replace_source: Annotated[bool, Option(help="The name comes from this source from now on.")] = False,
    pack_to: Annotated[
        str | None, Option(metavar="STORE", help="Pack into this store on the way, for the next node.")
    ] = None,
    lease: Annotated[str | None, Option(metavar="OWNER", help="Keep it from eviction for OWNER.")] = None,
    lease_for: Annotated[str, Option(metavar="DURATION", help="How long.")] = "2h",
    dry_run: DryRun = False,
    skip_special: SkipSpecial = False,
    storage_option: StorageOption = None,
) -> None:
    """Make a dataset present, verified and read-only on this node."""
    from dsagent.service.origins import CacheRequest  # noqa: PLC0415 - slow to import

    if session.node is not None and "/" not in source and dry_run is False:
        from dsagent.entrypoints.dsctl.cluster import request_of  # noqa: PLC0415 - most runs have no cluster

        _show_cached(session, session.verbs.cache(request_of(source, version)), lease=True)
        return
    request = CacheRequest(
        location(source, storage_option),
        name,
        version,
        check=check.value,
        replace_source=replace_source,
        pack_to=location(pack_to, storage_option) if pack_to is not None else None,
        lease_owner=lease,
        lease_seconds=parse_duration(lease_for),
        skip_special=skip_special,
    )
    if dry_run:
        plan = session.verbs.plan_cache(request)
        session.show(View(plan, lambda _: _planned(plan), [f"{plan.dataset}@{plan.version}"]))
        return
    result = session.verbs.cache(request)
    _show_cached(session, result, lease=lease is not None or session.node is not None)


def _show_cached(session: Session, result: CacheResult, *, lease: bool) -> None:
    _say_skipped(session, result.skipped_special)
    session.show(View(result, lambda _: _cached(result), [f"{result.dataset}@{result.version}"]))
    if not lease:
        session.note(
            f"a later cache may evict {result.dataset}; to keep it while a program runs: "
            f"dsctl run {result.dataset} -- COMMAND"
        )


def _cached(result: CacheResult) -> list[str]:
    return pairs(
        {
            "dataset": result.dataset,
            "version": result.version,
            "path": result.path,
            "outcome": result.outcome,
            "files": f"{human_count(result.files)} ({human_size(result.bytes)})",
            "fetched": f"{human_size(result.fetched_bytes)}, {human_count(result.reused_files)} files reused",
            "evicted": _evicted(result.evicted),
            "time": human_duration(result.seconds),
        }
    )


def _planned(plan: CachePlan) -> list[str]:
    return pairs(
        {
            "dataset": plan.dataset,
            "version": plan.version or "not known before the source is read",
            "outcome": plan.outcome,
            "files": f"{human_count(plan.files)} ({human_size(plan.bytes)})",
            "needs": human_size(plan.needed_bytes),
            "would evict": _evicted(plan.evicted),
        }
    )


def _evicted(evicted: Sequence[Evicted]) -> str:
    return ", ".join(f"{one.dataset} ({human_size(one.bytes)})" for one in evicted) or "nothing"


def _say_skipped(session: Session, count: int) -> None:
    if count:
        session.note(f"{human_count(count)} special entries were left out")


EXAMPLES = {
    "pack": example("dsctl pack /mnt/nfs/imagenet /mnt/nfs/stores/imagenet"),
    "cache": example(
        "dsctl cache /mnt/nfs/stores/imagenet",
        "dsctl cache s3://data/coco --lease me --lease-for 8h",
        "dsctl cache imagenet --node n1",
    ),
}
