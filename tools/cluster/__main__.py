"""python -m tools.cluster up [--nodes N] [--numa] | down | images | shell NODE COMMAND..."""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.cluster.building import build_programs, require_machine
from tools.cluster.images import build_images
from tools.cluster.layout import ClusterError, the_cluster
from tools.cluster.node import NodeOptions, node_room
from tools.cluster.updown import down, up


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description="A real Kubernetes on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    begin = verbs.add_parser("up", help="build what is needed and start the cluster")
    begin.add_argument("--nodes", type=int, default=1, help="how many nodes [default: 1]")
    begin.add_argument("--numa", action="store_true", help="show two NUMA nodes to each kubelet")
    verbs.add_parser("down", help="remove all of it, also after a crash")
    verbs.add_parser("images", help="build the project's images")
    run = verbs.add_parser("run", help="run a command in a node's namespaces")
    run.add_argument("node", type=int, help="the node's number")
    run.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _build_all() -> Path:
    """Build the programs and the images, one beside the other: compilers keep the CPUs busy, images the network.

    Returns the store with the images.
    """
    with ThreadPoolExecutor() as threads:
        programs, images = threads.submit(build_programs), threads.submit(build_images)
        programs.result()
        return images.result()


def main() -> int:
    """Does what the command line says; returns the exit code."""
    arguments = _arguments()
    cluster = the_cluster()
    try:
        if arguments.verb == "up":
            require_machine()
            up(cluster, arguments.nodes, _build_all(), NodeOptions(numa=arguments.numa))
        elif arguments.verb == "down":
            down(cluster)
        elif arguments.verb == "images":
            require_machine()
            print(build_images())
        else:
            done = node_room(cluster, cluster.node(arguments.node)).run(*arguments.command, check=False)
            sys.stdout.write(done.stdout)
            sys.stderr.write(done.stderr)
            return done.returncode
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
