"""Which job a pod belongs to: what it says itself, its framework's labels, its topmost controller."""

from typing import Any

import pytest

from scheduler_plugin.rail.job import Job, Owner, controller_of, job_of, topmost

JOB = Owner("batch/v1", "Job", "train-0", "u-job")
SET = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "u-set")


def owned(owner: Owner | None, uid: str = "", **metadata: Any) -> dict[str, Any]:
    references = [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-node"},  # an owner that controls nothing
        *([] if owner is None else [_reference(owner)]),
    ]
    return {"metadata": {"uid": uid, "ownerReferences": references, **metadata}}


def _reference(owner: Owner) -> dict[str, Any]:
    kind = {"apiVersion": owner.api_version, "kind": owner.kind}
    return {**kind, "name": owner.name, "uid": owner.uid, "controller": True}


@pytest.mark.parametrize(
    ("metadata", "kind", "name", "uid"),
    [
        ({"annotations": {"dsagent.io/job": "a"}, "labels": {"dsagent.io/job": "b"}}, "dsagent.io/job", "a", ""),
        ({"labels": {"dsagent.io/job": "b", "volcano.sh/job-name": "c"}}, "dsagent.io/job", "b", ""),
        (
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "s", "training.kubeflow.org/job-name": "k"}},
            "jobset.sigs.k8s.io/jobset-name",
            "s",
            "u-set",
        ),
        ({"labels": {"training.kubeflow.org/job-name": "k"}}, "training.kubeflow.org/job-name", "k", "u-set"),
        ({"labels": {"volcano.sh/job-name": "v"}}, "volcano.sh/job-name", "v", "u-set"),
        ({"labels": {"mpi-job-name": "m"}}, "mpi-job-name", "m", "u-set"),
        ({"labels": {"app": "x"}}, "JobSet", "train", "u-set"),
    ],
)
def test_identity(metadata: dict[str, Any], kind: str, name: str, uid: str) -> None:
    found = job_of({"metadata": metadata}, SET)
    assert found is not None
    assert (found.kind, found.name, found.uid) == (kind, name, uid)
    assert found.owner == (SET if uid else None)


def test_a_pod_that_nobody_controls_is_of_no_job() -> None:
    assert job_of(owned(None), controller_of(owned(None))) is None


def test_the_topmost_controller_is_found_through_what_others_make() -> None:
    there = {JOB: owned(SET, JOB.uid)}
    assert topmost(JOB, there.get) == SET
    asked: list[Owner] = []
    assert topmost(SET, asked.append) == SET  # a kind that is nobody's part
    assert not asked


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (owned(None, JOB.uid), "it has no controller"),
        (owned(Owner("batch/v1", "CronJob", "nightly", "u-cron"), JOB.uid), "each Job of a CronJob is another one"),
        (owned(SET, "u-other"), "another Job has its name now"),
        (None, "it is gone"),
    ],
)
def test_a_job_that_is_topmost_itself(found: dict[str, Any] | None, why: str) -> None:
    assert topmost(JOB, lambda _: found) == JOB, why


def test_the_decisions_name_is_a_label_and_differs_where_the_job_does() -> None:
    jobs = [
        Job("Job", "train", "1"),
        Job("Job", "train", "2"),
        Job("dsagent.io/job", "train"),
        Job("dsagent.io/job", "Train_" + "x" * 300),
        Job("dsagent.io/job", "…"),
    ]
    names = [one.decision for one in jobs]
    assert len(set(names)) == len(names)
    assert names[0].startswith("train-")
    assert all(len(name) <= 63 and name.replace("-", "").isalnum() and name == name.lower() for name in names)
