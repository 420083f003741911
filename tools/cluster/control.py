"""The control plane: etcd, API server, controller manager and scheduler, on the machine's own network."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

from tools.cluster.building import program
from tools.cluster.certificates import issue, make_authority, make_key, write_kubeconfig
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import API_ADDRESS, API_SERVICE, PODS, SERVICES, Cluster, ClusterError
from tools.cluster.rooms import Room, is_running, open_room, start, stop, wait_until
from tools.cluster.scheduler import write_configuration

_ETCD = f"http://{API_ADDRESS}:2379"
_PEERS = f"http://{API_ADDRESS}:2380"
# Who of ours has written what: what an idle cluster costs is counted from this.
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "userGroups": ["system:serviceaccounts:dsagent-system"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "None"},
    ],
}


def control_room(cluster: Cluster) -> Room:
    """Where the control plane runs."""
    return Room("control", cluster.directory / "control", cluster.logs / "control", own_network=False)


def start_control_plane(cluster: Cluster) -> None:
    """Start what of the control plane does not run; returns when the API server answers.

    Raises:
        ClusterError: it does not; the message says where its log is.
    """
    room = control_room(cluster)
    open_room(room)
    (room.directory / "audit.json").write_text(json.dumps(_AUDIT))
    for name, command in _programs(cluster).items():
        if not is_running(room, name):
            start(room, name, command)
        if name == "kube-apiserver":
            _await(cluster, room)


def audit_log(cluster: Cluster) -> Path:
    """A document a line for each write of the project's own accounts."""
    return cluster.logs / "control" / "audit.log"


def stop_api_server(cluster: Cluster) -> None:
    """Stop the API server and nothing else, until `start_control_plane`; asked politely it takes a minute."""
    stop(control_room(cluster), "kube-apiserver", signal.SIGKILL)


def _programs(cluster: Cluster) -> dict[str, Sequence[str]]:
    pki, admin = cluster.pki, str(cluster.kubeconfig)
    return {
        "etcd": [
            "etcd",
            f"--data-dir={cluster.directory}/control/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_PEERS}",
            f"--initial-advertise-peer-urls={_PEERS}",
            f"--initial-cluster=default={_PEERS}",
            "--unsafe-no-fsync",  # it does not outlive a crash, and the nodes share its disk
        ],
        "kube-apiserver": [
            str(program("kube-apiserver")),
            f"--etcd-servers={_ETCD}",
            f"--bind-address={API_ADDRESS}",
            "--secure-port=6443",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-key-file={pki}/accounts.key",
            f"--service-account-signing-key-file={pki}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",  # names of nodes lead nowhere
            f"--audit-policy-file={cluster.directory}/control/audit.json",
            f"--audit-log-path={audit_log(cluster)}",
            "--enable-aggregator-routing=true",  # webhooks are called at their pods: the machine has no kube-proxy
        ],
        "kube-controller-manager": [
            str(program("kube-controller-manager")),
            f"--kubeconfig={admin}",
            f"--bind-address={API_ADDRESS}",
            f"--root-ca-file={pki}/ca.crt",
            f"--service-account-private-key-file={pki}/accounts.key",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=false",
            f"--cluster-cidr={PODS}",
            "--leader-elect=false",
        ],
        "kube-scheduler": [
            str(program("kube-scheduler")),
            f"--config={write_configuration(cluster)}",
            f"--bind-address={API_ADDRESS}",
        ],
    }


def make_identities(cluster: Cluster) -> None:
    """Make the authority, and the certificates and files of the API server and the administrator."""
    pki = cluster.pki
    if cluster.kubeconfig.exists():
        return
    make_authority(pki)
    make_key(pki / "accounts.key")
    issue(pki, "apiserver", "kube-apiserver", addresses=[API_ADDRESS, API_SERVICE])
    issue(pki, "admin", "admin", "system:masters")
    write_kubeconfig(pki, "admin", cluster.kubeconfig)


def _await(cluster: Cluster, room: Room) -> None:
    def answers() -> bool:
        if not is_running(room, "kube-apiserver"):
            raise ClusterError(f"kube-apiserver ended: {_last_lines(room.logs / 'kube-apiserver.log')}")
        return kubectl(cluster, "get", "--raw", "/readyz", check=False).returncode == 0

    wait_until(answers, f"the API server; its log is {room.logs}/kube-apiserver.log", 120)


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])
