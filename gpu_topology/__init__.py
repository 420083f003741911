"""Which GPUs and network cards of a node are near each other; its work comes with a later release."""
