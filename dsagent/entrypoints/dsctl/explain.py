"""dsctl explain: why a pod is on its node, or could be on which."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dsagent.core.errors import NoSuchObject
from dsagent.entrypoints.dsctl.options import example
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.render import View, printable, table
from dsagent.wiring import open_cluster

if TYPE_CHECKING:
    from dsagent.entrypoints.dsctl.session import Session

Explanation = Mapping[str, Any]


def explain(
    session: "Session",
    pod: Annotated[str, Argument(metavar="POD", help="The pod.")],
    namespace: Annotated[
        str, Option(names=("--namespace", "-n"), help="Its namespace; that of your kubeconfig, or default.")
    ] = "",
    all_nodes: Annotated[bool, Option(help="All nodes, not only the first.")] = False,
    plugin: Annotated[
        list[str] | None,
        Option(metavar="URL", help="Ask the scheduler plugin there, not all replicas of the cluster."),
    ] = None,
) -> None:
    """Say term by term why a pod is on its node, and why others were refused."""
    from dsagent.adapters.kubernetes.schedulers import (  # noqa: PLC0415 - most runs have no cluster
        explanations,
        replicas_at,
        replicas_of,
    )

    query = {"pod": pod, "all_nodes": str(all_nodes).lower()}
    if plugin:
        namespace = namespace or "default"
        replicas = replicas_at(plugin)
    else:
        cluster = open_cluster("dsctl")
        namespace = namespace or cluster.server.namespace
        replicas = replicas_of(cluster)
    answers = list(explanations(replicas, {**query, "namespace": namespace}))
    found = best(answers)
    if found is None:
        cause = "; ".join(sorted({answer["problem"] for answer in answers}))
        hint = "it asks for datasets or GPUs of a class only if kubectl get pod shows so; pods that ended are forgotten"
        raise NoSuchObject("explain", f"pod {namespace}/{pod}", cause, hint)
    session.show(View(found, lambda _: _lines(found), [row["node"] for row in found["nodes"]]))


def best(answers: Sequence[Explanation]) -> Explanation | None:
    """What the replica says that kube-scheduler asked last, for scores rather than for nodes only."""
    known = [answer for answer in answers if "problem" not in answer]
    return max(known, key=lambda answer: (answer["asked"], answer["when"]), default=None)


def _lines(found: Explanation) -> Iterable[str]:
    wishes = [f"dataset {one['name']}" for one in found["datasets"]]
    wishes += [f"{count} of {name}" for name, count in found["devices"].items()]
    pod = found["pod"]
    yield f"pod {pod['namespace']}/{pod['name']}: {printable(', '.join(wishes) or 'asks for nothing')}"
    yield f"kube-scheduler chose {found['chosen']}" if found["chosen"] else "kube-scheduler has not chosen a node yet"
    for note in found["notes"]:
        yield f"note: {printable(note)}"
    yield ""
    yield from table(["NODE", "SCORE", "TERM", "RAW", "NORMALISED", "WEIGHT", "WHY"], _rows(found))
    if len(found["nodes"]) < found["count"]:
        yield f"and {found['count'] - len(found['nodes'])} more nodes: --all-nodes"
    if found["refused"]:
        yield ""
        yield from table(["REFUSED", "WHY"], [[one["node"], one["why"]] for one in found["refused"]])


def _rows(found: Explanation) -> Iterable[Sequence[str]]:
    for row in found["nodes"]:
        marked = f"{row['node']} *" if row["node"] == found["chosen"] else row["node"]
        first = [marked, str(row["score"])]
        for term in row["terms"]:
            numbers = [f"{term['raw']:.4g}", f"{term['normalised']:.4g}", f"{term['weight']:g}"]
            yield [*first, term["term"], *numbers, term["why"]]
            first = ["", ""]
        if not row["terms"]:
            yield [*first, "-", "-", "-", "-", "no term applies to this pod"]


EXAMPLES = {"explain": example("dsctl explain train-0 -n research", "dsctl explain train-0 --all-nodes -o json")}
