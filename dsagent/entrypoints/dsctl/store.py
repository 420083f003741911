"""dsctl store: looking after a store."""

from typing import Annotated

from dsagent.core.errors import BadStore
from dsagent.core.quantities import human_count, human_duration, human_size, parse_duration
from dsagent.entrypoints.dsctl.options import DryRun, StorageOption, Store, example
from dsagent.entrypoints.dsctl.parser import Option
from dsagent.entrypoints.dsctl.render import View, pairs
from dsagent.entrypoints.dsctl.session import Session, location
from dsagent.service.results import StoreCheckResult


def check(session: Session, store: Store, storage_option: StorageOption = None) -> None:
    """Re-read all of a store and compare it with its manifests; exit code 10 if something is bad."""
    from dsagent.service.store import check  # noqa: PLC0415 - slow to import
    from dsagent.wiring import default_workers  # noqa: PLC0415

    result = check(session.opener, session.meter, default_workers(), location(store, storage_option))
    session.show(View(result, lambda _: _checked(result), [result.dataset]))
    if result.bad:
        raise BadStore(
            "vouch for", store, f"{len(result.bad)} of its objects are bad", "pack the source anew elsewhere"
        )


def _checked(result: StoreCheckResult) -> list[str]:
    return [
        *(f"{bad.key}: {bad.problem}" for bad in result.bad),
        *pairs(
            {
                "dataset": result.dataset,
                "versions": human_count(result.versions),
                "bundles": f"{human_count(result.bundles)} ({human_size(result.bytes)})",
                "problems": human_count(len(result.bad)),
                "time": human_duration(result.seconds),
            }
        ),
    ]


def forget(
    session: Session,
    store: Store,
    *,
    keep_last: Annotated[int | None, Option(least=1, help="Keep so many of the newest versions.")] = None,
    older_than: Annotated[str | None, Option(metavar="DURATION", help="Keep what is younger, such as 30d.")] = None,
    dry_run: DryRun = False,
    storage_option: StorageOption = None,
) -> None:
    """Drop versions from a store, never the current one; prune deletes their bundles later."""
    from dsagent.service.store import forget  # noqa: PLC0415 - slow to import

    age = parse_duration(older_than) if older_than is not None else None
    result = forget(session.opener, location(store, storage_option), keep_last, age, dry_run)
    names = [f"{result.dataset}@{version}" for version in result.forgotten]
    done = "would be forgotten" if dry_run else "forgotten"
    summary = f"{len(names)} {done}, {result.kept} kept"
    session.show(View(result, lambda _: [*(f"{name} {done}" for name in names), summary], names))


def prune(session: Session, store: Store, dry_run: DryRun = False, storage_option: StorageOption = None) -> None:
    """Delete what no version of a store needs and what is older than 7 days; packs may run meanwhile."""
    from dsagent.service.store import prune  # noqa: PLC0415 - slow to import

    result = prune(session.opener, location(store, storage_option), dry_run)
    done = "would be deleted" if dry_run else "deleted"
    summary = f"{len(result.deleted)} {done} ({human_size(result.freed_bytes)}), {result.kept_young} too young"
    session.show(View(result, lambda _: [*(f"{key} {done}" for key in result.deleted), summary], [result.dataset]))


EXAMPLES = {
    "check": example("dsctl store check /mnt/nfs/stores/imagenet"),
    "forget": example("dsctl store forget /mnt/nfs/stores/imagenet --keep-last 3 --older-than 30d"),
    "prune": example("dsctl store prune /mnt/nfs/stores/imagenet --dry-run"),
}
