"""The objects as they are read and written."""

from datetime import UTC, datetime, timedelta, timezone

from dsagent.api.v1alpha1.dataset import Dataset
from dsagent.api.v1alpha1.meta import Condition, set_condition
from dsagent.api.v1alpha1.node_dataset_cache import NodeDatasetCache

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)


def condition(status: str, reason: str, at: datetime = NOW) -> Condition:
    return Condition.model_validate(
        {"type": "Cached", "status": status, "reason": reason, "message": "", "lastTransitionTime": at}
    )


def test_what_the_server_adds_is_dropped_and_what_is_not_there_is_not_written() -> None:
    given = {
        "apiVersion": "dsagent.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "coco", "namespace": "research", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"source": "/mnt/coco", "maxAge": "2h", "fromLater": 1},
    }
    assert Dataset.model_validate(given).document() == {
        "apiVersion": "dsagent.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "coco", "namespace": "research"},
        "spec": {"source": "/mnt/coco", "maxAge": "2h", "check": "fingerprint"},
    }


def test_times_are_written_as_kubernetes_reads_them() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=2)))
    assert condition("True", "There", elsewhere).document()["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_a_node_says_its_numbers_in_camel_case() -> None:
    text = {
        "metadata": {"name": "n1"},
        "status": {
            "capacity": {"bytes": 10, "inodes": 0},
            "free": {"bytes": 4, "inodes": 0},
            "reserved": {"bytes": 1, "inodes": 0},
            "versions": [
                {"namespace": "_cluster", "name": "coco", "state": "Caching", "bytesPresent": 3, "inUse": True}
            ],
        },
    }
    status = NodeDatasetCache.model_validate(text).status
    assert status
    (version,) = status.versions
    assert (version.bytes_present, version.in_use, version.version) == (3, True, "")
    assert version.document()["bytesPresent"] == 3


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    later = NOW + timedelta(hours=1)
    first = set_condition([], condition("False", "NoNode"))
    again = set_condition(first, condition("False", "StillNone", later))
    turned = set_condition(again, condition("True", "There", later))
    assert [(one.reason, one.last_transition_time) for one in again] == [("StillNone", NOW)]
    assert [(one.reason, one.last_transition_time) for one in turned] == [("There", later)]
