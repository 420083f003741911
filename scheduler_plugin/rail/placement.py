"""Whether a node takes a pod as far as its labels, taints and cordon say; room is not looked at here."""

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler_plugin.facts import Host, Taint

Object = Mapping[str, Any]


def takes(host: Host, spec: Object) -> bool:
    """Whether a pod of this spec may run there: cordon, taints, nodeSelector and required node affinity."""
    tolerations: Sequence[Object] = spec.get("tolerations") or ()
    if any(not any(tolerates(one, taint) for one in tolerations) for taint in host.taints):
        return False
    if not (spec.get("nodeSelector") or {}).items() <= host.labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(_matches(host, term) for term in affinity.get("nodeSelectorTerms") or ())


def tolerates(toleration: Object, taint: Taint) -> bool:
    """As kube-scheduler decides it: an empty effect or key stands for all."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    return toleration["key"] == taint.key and (exists or (toleration.get("value") or "") == taint.value)


def _matches(host: Host, term: Object) -> bool:
    """A term without a requirement matches nothing."""
    fields = [_fulfils(one, {"metadata.name": host.name}) for one in term.get("matchFields") or ()]
    labels = [_fulfils(one, host.labels) for one in term.get("matchExpressions") or ()]
    return bool(fields or labels) and all((*fields, *labels))


def _fulfils(requirement: Object, labels: Mapping[str, str]) -> bool:
    operator: str = requirement.get("operator") or ""
    values: Sequence[str] = requirement.get("values") or ()
    value = labels.get(requirement["key"])
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    if operator in ("In", "NotIn"):
        return (value in values) == (operator == "In")
    try:
        number, bound = int(value or ""), int("".join(values))
    except ValueError:
        return False
    return {"Gt": number > bound, "Lt": number < bound}.get(operator, False)
