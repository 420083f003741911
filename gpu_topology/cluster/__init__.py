"""A node of a Kubernetes cluster: what the device plugin tells the cluster of it, and the rail numbers it is told."""
