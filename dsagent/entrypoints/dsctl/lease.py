"""dsctl lease: who uses what, until when."""

from typing import Annotated

from dsagent.core.quantities import parse_duration
from dsagent.entrypoints.documents import rfc3339
from dsagent.entrypoints.dsctl.options import example
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.render import View, pairs, short, table
from dsagent.entrypoints.dsctl.session import Session
from dsagent.service.results import LeaseInfo

Duration = Annotated[str, Option(names=("--for",), metavar="DURATION", help="How long from now.")]
Wanted = Annotated[str, Argument(metavar="NAME_OR_ID", help="A dataset, NAME@VERSION, or a lease's id.")]
Owner = Annotated[str | None, Option(help="Whose lease, where a dataset has several.")]


def add(
    session: Session,
    dataset: Annotated[str, Argument(metavar="NAME", help="A dataset, or NAME@VERSION.")],
    owner: Annotated[str, Option(help="Who uses it.")],
    duration: Duration = "2h",
) -> None:
    """Keep a dataset from eviction for some time."""
    _show(session, session.verbs.add_lease(dataset, owner, parse_duration(duration)))


def renew(session: Session, wanted: Wanted, owner: Owner = None, duration: Duration = "2h") -> None:
    """Let a lease end later, or sooner."""
    _show(session, session.verbs.renew_lease(wanted, owner, parse_duration(duration)))


def release(session: Session, wanted: Wanted, owner: Owner = None) -> None:
    """End a lease."""
    _show(session, session.verbs.release_lease(wanted, owner))


def ls(session: Session) -> None:
    """List all leases; those without an end are held by running processes."""
    leases = session.verbs.leases()
    headers = ["OWNER", "DATASET", "VERSION", "EXPIRES", "ID"]

    def lines(wide: bool) -> list[str]:
        return table(
            headers, [[i.owner, i.dataset, i.version if wide else short(i.version), _end(i), i.id] for i in leases]
        )

    session.show(View(leases, lines, [f"{info.dataset}@{info.version}" for info in leases]))


def _show(session: Session, info: LeaseInfo) -> None:
    fields = {"owner": info.owner, "dataset": info.dataset, "version": info.version, "expires": _end(info)}
    session.show(View(info, lambda _: pairs({**fields, "id": info.id}), [f"{info.dataset}@{info.version}"]))


def _end(info: LeaseInfo) -> str:
    return rfc3339(info.expires) if info.expires is not None else "with its process"


EXAMPLES = {
    "add": example("dsctl lease add imagenet --owner alice --for 8h"),
    "renew": example("dsctl lease renew imagenet --owner alice --for 8h"),
    "release": example("dsctl lease release imagenet --owner alice"),
    "ls": example("dsctl lease ls -o json"),
}
