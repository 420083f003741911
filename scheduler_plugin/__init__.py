"""The scheduler extender: data, rail, NUMA and links in one score with its reasons."""
