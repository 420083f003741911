"""The agent's part in a cluster, put together."""

import os
import platform
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from dsagent.adapters.kubelet import Kubelet
from dsagent.adapters.kubernetes.recorder import Recorder
from dsagent.agent.events import Event
from dsagent.agent.noop import noop
from dsagent.agent.tasks import TaskSpec
from dsagent.api.v1 import DatasetRequest, TaskOwner, TaskRequest
from dsagent.contract import CLUSTER_NAMESPACE, NO_OP_IN_ROOT
from dsagent.core.bound_pods import BoundPod
from dsagent.core.cluster import Cluster
from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import UsageError, local_error
from dsagent.core.tasks import Owner, TaskInfo
from dsagent.entrypoints.serve.asking import task_spec, wanted_from
from dsagent.entrypoints.serve.identity import ADMINISTRATOR, Identity
from dsagent.entrypoints.serve.kubernetes.datasets import AnyDataset, Datasets
from dsagent.entrypoints.serve.kubernetes.events import CONTROLLER, Reporter
from dsagent.entrypoints.serve.kubernetes.keeper import Keeper
from dsagent.entrypoints.serve.kubernetes.pods import NodePods
from dsagent.entrypoints.serve.kubernetes.report import Checks, Report
from dsagent.entrypoints.serve.state import State


class Presence:
    """All that the agent of a node does in its cluster."""

    def __init__(self, cluster: Cluster, node: str, kubelet: Kubelet, state: State) -> None:
        agent = state.agent
        self._state = state
        self._checks = Checks(agent.node)
        self._recorder = Recorder(cluster, CONTROLLER, node)
        self._keeper = Keeper(node, agent, self._prefetch)
        self._datasets = Datasets(cluster, self._keeper.heard, self._checks.newest, agent.node.clock.now)
        self._reporter = Reporter(self._recorder.say, self._find, node)
        self._report = Report(cluster, node, agent, self._checks)
        self._pods = NodePods(cluster, node, agent, kubelet, self._enter, self._recorder.say)
        state.datasets = self._datasets
        agent.events.listen(self._heard)

    def prepare(self) -> None:
        """What has to be there before pods are: the no-op that kubelet mounts into them."""
        put_noop(self._state.agent.node.root / NO_OP_IN_ROOT)

    def start(self) -> None:
        """Begins; the agent has to be recovered."""
        self._recorder.start()
        self._datasets.start()
        self._pods.start()
        self._keeper.start(self._datasets)
        self._report.start()

    def stop(self) -> None:
        """Ends."""
        for part in (self._pods, self._keeper, self._datasets, self._report, self._recorder):
            part.stop()

    def _heard(self, event: Event) -> None:
        if isinstance(event.document, TaskInfo):
            self._check(event.document)
        self._reporter.heard(event)
        self._report.heard(event)

    def _check(self, info: TaskInfo) -> None:
        """Whoever got a dataset without check `never` has just compared it with its source."""
        spec = self._state.agent.spec(info.id)
        for dataset, wanted in zip(info.datasets, spec.wanted if spec else (), strict=False):
            if dataset.state == "ready" and dataset.version and wanted.request.check != "never":
                self._checks.heard(DatasetKey(wanted.request.namespace, dataset.name), dataset.version)

    def _find(self, key: DatasetKey) -> AnyDataset | None:
        return self._datasets.find(key) or self._datasets.find(DatasetKey(CLUSTER_NAMESPACE, key.name))

    def _enter(self, pod: BoundPod) -> None:
        """Begins what a pod's init client will ask for."""
        who = Identity("pod", pod.namespace, pod.uid)
        self._state.agent.put(task_spec(pod.uid, early_request(pod), who, self._state))

    def _prefetch(self, task_id: str, dataset: AnyDataset) -> TaskSpec:
        meaning = self._datasets.meaning_of(dataset)
        who = ADMINISTRATOR if meaning.trusted else Identity("pod", meaning.namespace)
        wanted = wanted_from(meaning.request, meaning.namespace, who, self._state)
        owner = Owner(dataset.metadata.namespace or CLUSTER_NAMESPACE, f"prefetch of {dataset.metadata.name}", "")
        return TaskSpec(task_id, owner, (wanted,), prefetch=True)


def early_request(pod: BoundPod) -> TaskRequest:
    """What a pod's init client will send, without credentials; raises UsageError for what is none."""
    try:
        entries: list[dict[str, Any]] = orjson.loads(pod.datasets)
        return TaskRequest(
            owner=TaskOwner(namespace=pod.namespace, name=pod.name, uid=pod.uid),
            datasets=[DatasetRequest.model_validate(_without(one, "environ")) for one in entries],
            on_failure="source" if pod.reads_source else "fail",
        )
    except (ValidationError, orjson.JSONDecodeError, AttributeError, TypeError) as error:
        subject = f"the datasets of pod {pod.namespace}/{pod.name}"
        raise UsageError("read", subject, f"they are not as the webhook writes them ({type(error).__name__})") from None


def _without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name}


def put_noop(path: Path) -> None:
    """Writes the static no-op in one step, so that what is mounted is whole; raises NotPermitted, DsagentError."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        program = noop(platform.machine())
        if path.is_file() and path.read_bytes() == program:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        scratch.write_bytes(program)
        scratch.chmod(0o755)
        scratch.replace(path)
    except OSError as error:
        raise local_error("make", str(path), error) from error
