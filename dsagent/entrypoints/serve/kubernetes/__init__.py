"""The agent in a cluster: pods of its node, Datasets, events, its report of what it holds, and tokens of pods."""
