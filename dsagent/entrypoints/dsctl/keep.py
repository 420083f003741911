"""dsctl verify, evict and doctor: keeping a node's cache in order."""

from typing import Annotated

from dsagent.core.errors import DigestMismatch, DsagentError, UsageError, show_path
from dsagent.core.quantities import human_count, human_duration, human_size, parse_size
from dsagent.entrypoints.dsctl.options import DryRun, StorageOption, example
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.render import View, pairs, short, table
from dsagent.entrypoints.dsctl.session import Session, location
from dsagent.service.results import EvictResult, VerifyResult


def verify(
    session: Session,
    dataset: Annotated[str, Argument(metavar="NAME", help="A dataset, or NAME@VERSION.")],
    repair: Annotated[bool, Option(help="Fetch bad files anew.")] = False,
    storage_option: StorageOption = None,
) -> None:
    """Re-read every file of a dataset and compare it with the manifest; exit code 5 if one is bad."""
    result = session.verbs.verify(dataset, repair, location(dataset, storage_option).options)
    session.show(View(result, lambda _: _verified(result), [f"{result.dataset}@{result.version}"]))
    if len(result.bad) > result.repaired:
        raise DigestMismatch(
            "verify",
            f"{result.dataset}@{result.version}",
            f"{len(result.bad) - result.repaired} of its {human_count(result.files)} files are bad",
            f"fetch them anew: dsctl verify {result.dataset} --repair",
            [bad.path for bad in result.bad],
        )


def _verified(result: VerifyResult) -> list[str]:
    return [
        *(f"{show_path(bad.path)}: {bad.problem}" for bad in result.bad),
        *pairs(
            {
                "dataset": result.dataset,
                "version": result.version,
                "files": human_count(result.files),
                "bad": human_count(len(result.bad)),
                "repaired": human_count(result.repaired),
                "time": human_duration(result.seconds),
            }
        ),
    ]


def evict(
    session: Session,
    dataset: Annotated[str | None, Argument(metavar="NAME", help="A dataset, or NAME@VERSION.")] = None,
    need: Annotated[
        str | None, Option(metavar="SIZE", help="Remove what is longest unused until so much is free.")
    ] = None,
    force: Annotated[bool, Option(help="Also under leases by time.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Remove a dataset, or as many as it takes until SIZE is free. What a process uses is never removed."""
    if (dataset is None) == (need is None):
        raise UsageError("run", "dsctl evict", "it takes NAME or --need SIZE, and not both", "see dsctl evict --help")
    if need is not None and force:
        raise UsageError("run", "dsctl evict", "--force goes with NAME only", "see dsctl evict --help")
    if need is not None:
        result = session.verbs.evict_need(parse_size(need), dry_run)
    else:
        result = session.verbs.evict(dataset or "", force, dry_run)
    session.show(View(result, lambda _: _evicted(result), [f"{e.dataset}@{e.version}" for e in result.evicted]))


def _evicted(result: EvictResult) -> list[str]:
    would = "would be " if result.dry_run else ""
    return [
        *(f"{one.dataset}@{short(one.version)} {would}evicted ({human_size(one.bytes)})" for one in result.evicted),
        f"{human_size(result.freed_bytes)} {would}freed",
    ]


def doctor(
    session: Session,
    rebuild: Annotated[bool, Option(help="Make the catalog anew from what is on the disk.")] = False,
    scheduler: Annotated[
        bool, Option(help="Look at the cluster's scheduler plugin instead, and whether it is asked.")
    ] = False,
    plugin: Annotated[list[str] | None, Option(metavar="URL", help="With --scheduler: look at the one there.")] = None,
) -> None:
    """Look at the filesystem, limits and leftovers, and say what to do; exit code 1 if something is wrong."""
    if scheduler:
        from dsagent.entrypoints.dsctl.scheduler import examine  # noqa: PLC0415 - most runs have no cluster

        findings = examine(plugin or ())
    else:
        findings = session.verbs.doctor(rebuild)
    rows = [[found.status, found.name, found.detail, found.advice] for found in findings]
    session.show(View({"checks": findings}, lambda _: table(["STATUS", "CHECK", "DETAIL", "ADVICE"], rows)))
    failed = [found.name for found in findings if found.status == "fail"]
    if failed:
        what = "the scheduler plugin" if scheduler else session.verbs.root
        raise DsagentError("vouch for", what, f"{', '.join(failed)} failed", "see the advice")


EXAMPLES = {
    "verify": example("dsctl verify imagenet --repair"),
    "evict": example("dsctl evict imagenet", "dsctl evict --need 500G --dry-run"),
    "doctor": example("dsctl doctor -o json", "dsctl doctor --scheduler"),
}
