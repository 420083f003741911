"""Who of the replicas acts: the one that holds the chart's Lease."""

import logging
import time
from datetime import UTC, datetime
from typing import Any

from dsagent.core.cluster import LEASES, Cluster, Object, metadata
from dsagent.core.errors import DsagentError, ObjectConflict

log = logging.getLogger("dsagent")

LEASE_SECONDS = 15
RENEW_SECONDS = 5.0
# A leader that could not renew for so long stops, well before another one may begin.
GIVE_UP_SECONDS = 10.0
_ATTEMPTS = 10


class Leadership:
    """Holds a Lease as `identity`. Other replicas' clocks are not trusted: a Lease is over when it has not changed for
    its time, as seen from here.
    """

    def __init__(self, cluster: Cluster, namespace: str, lease: str, identity: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._lease = lease
        self._identity = identity
        self._seen = ""
        self._seen_at = 0.0
        self._renewed = float("-inf")

    @property
    def leads(self) -> bool:
        """Whether this replica may write now."""
        return time.monotonic() - self._renewed < GIVE_UP_SECONDS

    def renew(self) -> bool:
        """Takes the Lease if it is free, or keeps it; whether this replica leads."""
        before = self.leads
        try:
            if self._take():
                if not before:
                    log.info("leading")
            elif before:
                self._renewed = float("-inf")
                log.warning("another replica leads")
        except ObjectConflict:
            self._renewed = float("-inf")
        except DsagentError as error:
            log.warning("renewing the lease: %s", error)
        return self.leads

    def release(self) -> None:
        """Lets another replica begin at once."""
        if self.leads:
            self._renewed = float("-inf")
            try:
                self._cluster.patch(LEASES, self._lease, {"spec": {"holderIdentity": None}}, self._namespace)
            except DsagentError as error:
                log.warning("releasing the lease: %s", error)

    def seize(self, seconds: int) -> None:
        """Takes the Lease from whoever holds it, for so long; who led before may go on for GIVE_UP_SECONDS. Raises what
        Cluster raises.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._hold(self._cluster.get(LEASES, self._lease, self._namespace), seconds)
            except ObjectConflict:
                continue  # its leader has just renewed it
        return self._hold(self._cluster.get(LEASES, self._lease, self._namespace), seconds)

    def _take(self) -> bool:
        asked = time.monotonic()
        found = self._cluster.get(LEASES, self._lease, self._namespace)
        spec: Object = found.get("spec") or {}
        version = metadata(found)["resourceVersion"]
        if version != self._seen:
            self._seen, self._seen_at = version, asked
        holder = spec.get("holderIdentity")
        over = asked - self._seen_at > spec.get("leaseDurationSeconds", LEASE_SECONDS)
        if holder and holder != self._identity and not over:
            return False
        self._hold(found, LEASE_SECONDS)
        self._renewed = asked
        return True

    def _hold(self, found: Object, seconds: int) -> None:
        """Writes that it is held; raises ObjectConflict if it has changed since it was found."""
        spec: Object = found.get("spec") or {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": metadata(found)["resourceVersion"]},
            "spec": {"holderIdentity": self._identity, "leaseDurationSeconds": seconds, "renewTime": now},
        }
        if spec.get("holderIdentity") != self._identity:
            change["spec"] |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        self._cluster.patch(LEASES, self._lease, change, self._namespace)
