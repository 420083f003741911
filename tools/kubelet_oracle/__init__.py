"""Compares gpu_topology.predict with kubelet's own managers: `python -m tools.kubelet_oracle`."""
