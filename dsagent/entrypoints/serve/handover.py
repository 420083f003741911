"""Leases on their way to a process: the agent holds them until the process says that it does."""

import threading

from starlette.convertors import StringConvertor, register_url_convertor

from dsagent.entrypoints.serve.problems import Unavailable
from dsagent.service.leases import ProcessLease, hold
from dsagent.service.node import Node
from dsagent.service.results import GrantedLease

SECONDS = 60.0
AT_ONCE = 1000


class LeaseId(StringConvertor):
    """The id of a lease in the path of a request."""

    regex = "[0-9a-f]{16}"


register_url_convertor("lease", LeaseId())


class Handovers:
    """The leases that the agent holds for processes that have not taken them over yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, ProcessLease] = {}

    def begin(self, node: Node, reference: str, owner: str) -> GrantedLease:
        """Leases a version until `end`; raises NotCached, UsageError, Unavailable."""
        with self._lock:
            if len(self._held) >= AT_ONCE:
                raise Unavailable("lease", reference, f"{AT_ONCE} processes are about to", "ask again in a moment")
        version = node.find(reference)
        lease = hold(node, version, owner)
        with self._lock:
            self._held[lease.info.id] = lease
        return GrantedLease(**vars(lease.info), file=str(lease.file.relative_to(node.root)))

    def end(self, lease_id: str) -> None:
        """Whoever holds the lease now, the agent does not; nothing happens the second time."""
        with self._lock:
            lease = self._held.pop(lease_id, None)
        if lease is not None:
            lease.release()
