"""The bridge between the machine and its nodes, and a cable to each.

On the machine this is one bridge with one address; a node's end of its cable, its routes and its firewall rules are in
the node's own network namespace and vanish with it, as does the bridge's end.
"""

import ipaddress
import subprocess
from collections.abc import Sequence

from tools.cluster.layout import API_ADDRESS, BRIDGE, PODS, ClusterError, Node
from tools.cluster.rooms import Room


def make_bridge() -> None:
    """Make the bridge, if it is not there yet.

    Raises:
        ClusterError: its addresses are in use on this machine.
    """
    if _ip("link", "show", BRIDGE).returncode == 0:
        return
    for network in (f"{API_ADDRESS}/24", PODS):
        _refuse_if_used(ipaddress.ip_network(network, strict=False))
    _must("link", "add", BRIDGE, "type", "bridge")
    _must("address", "add", f"{API_ADDRESS}/24", "dev", BRIDGE)
    _must("link", "set", BRIDGE, "up")


def remove_bridge(nodes: Sequence[Node]) -> None:
    """Remove the bridge and with it its address and the routes to the nodes' pods, and the cables to these nodes.

    A cable goes with its node, but the kernel may take its time.
    """
    for link in (*(node.link for node in nodes), BRIDGE):
        _ip("link", "delete", link)


def connect(node: Node, room: Room, others: Sequence[Node]) -> None:
    """Lay a cable from the node's room to the bridge; `others` are the nodes whose pods it has to reach."""
    if room.run("ip", "link", "show", "eth0", check=False).returncode:
        _lay_cable(node, room)
    for other in others:
        room.run("ip", "route", "replace", other.pods, "via", other.address)


def _lay_cable(node: Node, room: Room) -> None:
    _must("link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", str(room.pid))
    _must("link", "set", node.link, "master", BRIDGE, "up")
    _must("route", "replace", node.pods, "via", node.address)
    room.run("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
    room.run("ip", "link", "set", "lo", "up")
    room.run("ip", "link", "set", "eth0", "up")
    room.run("ip", "route", "add", "default", "via", API_ADDRESS)
    room.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


def _refuse_if_used(wanted: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    for line in _must("-4", "route", "show").splitlines():
        destination = line.split()[0]
        if destination == "default":
            continue
        if ipaddress.ip_network(destination, strict=False).overlaps(wanted):
            raise ClusterError(f"cannot make the network {wanted}: the machine has a route to {destination}: {line}")


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)


def _must(*arguments: str) -> str:
    done = _ip(*arguments)
    if done.returncode:
        raise ClusterError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
