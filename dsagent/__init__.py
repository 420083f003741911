"""Puts training datasets on the node's local disk: whole, verified and read-only."""

__version__ = "0.1.0"
