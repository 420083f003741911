"""Implementations of the ports. Exceptions of the world outside become DsagentErrors here, once."""
