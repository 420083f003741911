"""The pods of this node: what they ask for begins as soon as they are bound, and ends when they have gone for good."""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from dsagent.adapters.kubelet import Kubelet
from dsagent.adapters.kubernetes.recorder import Said
from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.agent.agent import Agent
from dsagent.contract import EVENT_CACHE_DELAYED, EVENT_NOT_INJECTED
from dsagent.core.bound_pods import BoundPod, bound_pod, freed, pods_by_uid
from dsagent.core.cluster import PODS, Cluster, Scope
from dsagent.core.errors import ClusterUnreachable, DsagentError, NotCached
from dsagent.entrypoints.serve.kubernetes.events import about_pod
from dsagent.service import pods

log = logging.getLogger("dsagent")

WATCH_SECONDS = 40.0  # the API is heard at least so often, or it is known to be silent
SOON_SECONDS = 1.0  # until what cannot end yet, or could not be begun, is looked at again
LATER_SECONDS = 30.0
END_SECONDS = 5.0


class NodePods:
    """Follows the pods that are bound to a node. `enter` begins a pod's task; `say` writes an event."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        agent: Agent,
        kubelet: Kubelet,
        enter: Callable[[BoundPod], object],
        say: Callable[[Said], None],
    ) -> None:
        self._cluster = cluster
        self._scope = Scope(fields=f"spec.nodeName={node}")
        self._agent = agent
        self._kubelet = kubelet
        self._enter = enter
        self._say = say
        self._news: deque[BoundPod] = deque()
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
        self._watch = Watch(cluster, PODS, bound_pod, self._heard, self._scope, WATCH_SECONDS)

    def start(self) -> None:
        """Begins; the agent has to be recovered."""
        self._thread.start()
        self._watch.start()

    def stop(self) -> None:
        """Ends."""
        self._watch.stop()
        self._stopped = True
        self._wake.set()
        self._thread.join(END_SECONDS)

    def silence(self) -> float:
        """Seconds since the API last answered."""
        return self._watch.silence()

    def _heard(self, heard: Heard[BoundPod]) -> None:
        if heard.object is not None and heard.kind in ("added", "modified"):
            self._news.append(heard.object)
        self._wake.set()

    def _run(self) -> None:
        pause = LATER_SECONDS
        while not self._stopped:
            self._wake.wait(pause)
            self._wake.clear()
            try:
                busy = self._meet_all()
                busy = (self._watch.synced and self.sweep()) or busy
                pause = SOON_SECONDS if busy else LATER_SECONDS
            except DsagentError as error:
                log.warning("looking after the pods: %s", error)
                pause = SOON_SECONDS
            except Exception:
                log.exception("looking after the pods")
                pause = LATER_SECONDS

    def _meet_all(self) -> bool:
        """Begins what new pods ask for; whether some have to be met again."""
        again = []
        while self._news:
            pod = self._news.popleft()
            try:
                self._meet(pod)
            except ClusterUnreachable:
                again.append(pod)
            except DsagentError as error:
                log.warning("the task of pod %s/%s is not begun early: %s", pod.namespace, pod.name, error)
                self._say(
                    Said(about_pod(pod), EVENT_CACHE_DELAYED, f"caching waits for the pod: {error}", warning=True)
                )
        self._news.extend(again)
        return bool(again)

    def _meet(self, pod: BoundPod) -> None:
        if pod.over:
            return
        if pod.asks and not pod.injected:
            note = (
                "this pod asks for datasets but has none of the containers and volumes that bring them: it was made "
                "while the webhook was not there, or where it does not look; delete it and make it again"
            )
            self._say(Said(about_pod(pod), EVENT_NOT_INJECTED, note, warning=True))
        if pod.datasets and self._agent.spec(pod.uid) is None:
            self._enter(pod)

    def sweep(self) -> bool:
        """Ends what pods hold that have gone for good; whether some are left that are on their way out."""
        held = self._held()
        known = pods_by_uid(self._watch.objects())
        leaving = {uid for uid in held if uid not in known or known[uid].over}
        if not leaving or not freed(leaving, known, self._kubelet.traces()):
            return bool(leaving)
        # What has been watched may be behind; this list is newer than all that is held, and the traces than the list.
        now = pods_by_uid([bound_pod(one) for one in self._cluster.listing(PODS, self._scope).items])
        over = freed(leaving, now, self._kubelet.traces())
        for uid in over:
            self._end(uid)
        return over != leaving

    def _held(self) -> set[str]:
        """The UIDs of pods that have a task, or links that are left of one."""
        owners = self._agent.owners()
        found = {task_id for task_id, owner in owners.items() if owner.uid}
        with contextlib.suppress(FileNotFoundError):
            found.update(os.listdir(self._agent.node.pods))
        return found - {task_id for task_id, owner in owners.items() if not owner.uid}

    def _end(self, uid: str) -> None:
        log.info("pod %s is gone for good", uid)
        try:
            self._agent.delete(uid)
        except NotCached:
            pods.unlink(self._agent.node, uid)
            self._agent.wake()
