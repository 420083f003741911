"""dsagent-init: asks the node's agent for a pod's datasets, waits for them and links them into place.

It imports dsagent.contract and the standard library only, and of that little: it runs before every job.
"""

from dsagent.entrypoints.init.main import main

__all__ = ["main"]
