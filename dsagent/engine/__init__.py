"""The data plane: scan, pack, fetch, unpack, verify, publish. Synchronous; heavy work goes to worker processes."""
