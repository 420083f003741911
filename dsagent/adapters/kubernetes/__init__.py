"""The Kubernetes API: where it is, asking it, and following what happens to its objects."""
