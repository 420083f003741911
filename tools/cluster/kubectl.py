"""kubectl, as the cluster's administrator."""

import subprocess

from tools.cluster.building import program
from tools.cluster.layout import Cluster, ClusterError


def kubectl(
    cluster: Cluster, *arguments: str, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run kubectl.

    Raises:
        ClusterError: it failed, and `check` is true.
    """
    command = [str(program("kubectl")), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    if check and done.returncode:
        raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done
