"""A real Kubernetes on one machine, as root on Debian: `make cluster`, `make cluster NODES=2`, `make cluster-down`.

Control plane and nodes are started from programs that are built once. Each node has its own PID, mount, network, UTS
and IPC namespace, its own /var and /run, its own containerd, kubelet and kube-proxy; on the machine there are only
a bridge, control groups and a folder. When the first process of a node ends, the kernel ends all of the node.
"""
