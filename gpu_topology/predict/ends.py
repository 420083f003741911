"""How an admission ends before its end; `predict` makes verdicts of these."""

from gpu_topology.predict.facts import UNEXPECTED_ADMISSION_ERROR


class Refused(Exception):
    """Kubelet refuses the pod."""

    def __init__(self, why: str, reason: str = UNEXPECTED_ADMISSION_ERROR) -> None:
        super().__init__(reason, why)
        self.reason = reason
        self.why = why


class Undecided(Exception):
    """What kubelet does cannot be known."""
