"""The agents of a cluster, asked through the API server's proxy to their pods.

The API server authenticates the person and lets through who may use `pods/proxy` there. It takes its own credentials
off the request and does not check the agent's certificate, so the agent is shown a token of another kind: of the
administrators' service account, made for ten minutes and for this node's agent alone.
"""

import http.client
import os
import time

from dsagent.adapters.kubernetes.client import ApiCluster, path
from dsagent.contract import AGENT_PORT, ENV_CLUSTER_NAMESPACE, TOKEN_AUDIENCE, TOKEN_HEADER
from dsagent.core.cluster import CLUSTER_DATASETS, DATASETS, PODS, SERVICE_ACCOUNTS, Object, Scope, metadata
from dsagent.core.errors import AgentUnreachable, NoSuchObject, UsageError

DEFAULT_NAMESPACE = "dsagent-system"
AGENTS = "app.kubernetes.io/name=dsagent,app.kubernetes.io/component=agent"
INSTANCE = "app.kubernetes.io/instance"
TOKEN_SECONDS = 600
RENEW_SECONDS = 60.0


class Proxied:
    """The way to the agent of a node; see dsagent.adapters.agent_address.Way."""

    def __init__(self, cluster: ApiCluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._namespace = os.environ.get(ENV_CLUSTER_NAMESPACE) or DEFAULT_NAMESPACE
        self._token = ""
        self._until = 0.0
        pod = metadata(self._pod())
        self._account = f"{pod['labels'][INSTANCE]}-admin"
        self.prefix = path(PODS, self._namespace, f"https:{pod['name']}:{AGENT_PORT}", "proxy")

    @property
    def name(self) -> str:
        """What it is called in errors."""
        return f"node {self._node}"

    def connection(self) -> http.client.HTTPConnection:
        """A new connection to the API server."""
        return self._cluster.connection()

    def headers(self) -> dict[str, str]:
        """What shows the API server and the agent who asks; raises what making a token raises."""
        if time.monotonic() > self._until - RENEW_SECONDS:
            self._renew()
        authorization = self._cluster.server.authorization()
        return {TOKEN_HEADER: self._token} | ({"Authorization": authorization} if authorization else {})

    def _pod(self) -> Object:
        scope = Scope(self._namespace, AGENTS, f"spec.nodeName={self._node},status.phase=Running")
        found = self._cluster.listing(PODS, scope).items
        if not found:
            raise AgentUnreachable(
                "find",
                f"the agent of node {self._node}",
                f"no pod of an agent runs there in namespace {self._namespace}",
                f"kubectl get pods -n {self._namespace} -o wide; {ENV_CLUSTER_NAMESPACE} names another namespace",
            )
        return found[0]

    def _renew(self) -> None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [f"{TOKEN_AUDIENCE}/{self._node}"], "expirationSeconds": TOKEN_SECONDS},
        }
        made = self._cluster.create(SERVICE_ACCOUNTS, body, self._namespace, name=self._account, subresource="token")
        self._token = made["status"]["token"]
        self._until = time.monotonic() + TOKEN_SECONDS


def find_dataset(cluster: ApiCluster, name: str, namespace: str) -> Object:
    """The Dataset of a namespace, or else the ClusterDataset; raises UsageError if there is neither."""
    try:
        return cluster.get(DATASETS, name, namespace)
    except NoSuchObject:
        pass
    try:
        return cluster.get(CLUSTER_DATASETS, name)
    except NoSuchObject as error:
        cause = f"there is no Dataset of this name in namespace {namespace}, and no ClusterDataset"
        raise UsageError("cache", name, cause, "kubectl get dset,cdset shows what there is") from error
