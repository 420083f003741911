"""Which GPUs and network cards of a node are near each other, what to hand out together, and how."""
