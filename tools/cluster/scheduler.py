"""kube-scheduler's configuration: beside the default profile that of the scheduler plugin, and the plugin as extender.

It is called at a port of the first node, which a Service of type NodePort may take: the machine has neither kube-proxy
nor DNS. As long as nobody answers there, only pods with the marker notice.
"""

import json

from tools.cluster.layout import Cluster

NODE_PORT = 30944
SERVICE = "dsagent-scheduler.dsagent-system.svc"  # of the chart, and in the certificate that it serves
PROFILE = "dsagent-scheduler"
MARKER = "dsagent.io/scheduled"


def write_configuration(cluster: Cluster) -> str:
    """Write the file for kube-scheduler's --config; returns its path."""
    path = cluster.directory / "control" / "scheduler.json"
    extender = {
        "urlPrefix": f"https://{cluster.node(1).address}:{NODE_PORT}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 50,
        "enableHTTPS": True,
        "tlsConfig": {"caFile": str(cluster.pki / "ca.crt"), "serverName": SERVICE},
        "httpTimeout": "1s",
        "nodeCacheCapable": True,
        "ignorable": True,
        "managedResources": [{"name": MARKER, "ignoredByScheduler": True}],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": PROFILE, "percentageOfNodesToScore": 100},
        ],
        "extenders": [extender],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    return str(path)
