"""What lives between requests: tasks, shared flights, fair shares, limits, events."""
