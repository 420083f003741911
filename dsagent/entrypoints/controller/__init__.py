"""The controller: what of the cluster's work no single agent can do."""
