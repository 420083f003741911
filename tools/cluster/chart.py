"""The project's chart, installed with helm."""

import subprocess

from tools.cluster.building import helm
from tools.cluster.images import REPOSITORY
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import IMAGE_TAG, Cluster, ClusterError

CHART = REPOSITORY / "charts" / "dsagent"
NAMESPACE = "dsagent-system"


def install_chart(cluster: Cluster, *options: str) -> None:
    """Install the chart or upgrade to it, if this tree has one, and wait until all of it is ready.

    Raises:
        ClusterError: helm failed, or something did not become ready.
    """
    if not (CHART / "Chart.yaml").exists():
        return
    if kubectl(cluster, "get", "namespace", NAMESPACE, check=False).returncode:
        kubectl(cluster, "create", "namespace", NAMESPACE)
        kubectl(cluster, "label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    cluster.sources.mkdir(exist_ok=True)
    values = ["--set", f"image.tag={IMAGE_TAG}", "--set", f"agent.sources={{{cluster.sources}}}"]
    run_helm(cluster, "upgrade", "--install", "dsagent", str(CHART), *values, "--wait", "--timeout=120s", *options)


def run_helm(cluster: Cluster, *arguments: str) -> str:
    """Run helm in the chart's namespace; returns what it printed.

    Raises:
        ClusterError: it failed.
    """
    command = [str(helm()), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
