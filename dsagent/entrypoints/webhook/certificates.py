"""The webhook's certificate: made and renewed by the replicas themselves, in a Secret that they share."""

import base64
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509

from dsagent.core.cluster import SECRETS, Cluster, Object, Resource, metadata
from dsagent.core.errors import DsagentError, ObjectConflict
from dsagent.entrypoints.self_signed import Pair, new_pair

log = logging.getLogger("dsagent")

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALID = timedelta(days=90)
RENEWED_BEFORE = timedelta(days=30)
LOOK_SECONDS = 60.0
_ATTEMPTS = 5
_CERTIFICATE, _KEY, _BEFORE = "tls.crt", "tls.key", "previous.crt"


Look = Callable[[datetime], Pair]
"""Gives the present certificate; may raise what Cluster raises."""


def is_good(certificate: bytes, names: Sequence[str], now: datetime) -> bool:
    """Whether it can be used for these names, and not only for the last days of its time."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        held = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    lasts = found.not_valid_before_utc <= now < found.not_valid_after_utc - RENEWED_BEFORE
    return lasts and set(names) <= set(held.get_values_for_type(x509.DNSName))


@dataclass(frozen=True)
class Shared:
    """The certificate in the Secret that the chart made, and the configuration by which API servers trust it."""

    cluster: Cluster
    namespace: str
    secret: str
    configuration: str
    names: Sequence[str]

    def look(self, now: datetime) -> Pair:
        """The present certificate: made anew if it is not good any more, and trusted together with the one before it.

        Raises what Cluster raises.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._look(now)
            except ObjectConflict:
                log.info("another replica has written the certificate; looking again")
        return self._look(now)

    def _look(self, now: datetime) -> Pair:
        found = self.cluster.get(SECRETS, self.secret, self.namespace)
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        if not (data.get(_KEY) and is_good(data.get(_CERTIFICATE, b""), self.names, now)):
            data = self._renew(found, data.get(_CERTIFICATE, b""), now)
        self._trust(data[_CERTIFICATE] + data.get(_BEFORE, b""))
        return Pair(data[_CERTIFICATE], data[_KEY])

    def _renew(self, found: Object, before: bytes, now: datetime) -> dict[str, bytes]:
        pair = new_pair(self.names, now, VALID)
        data = {_CERTIFICATE: pair.certificate, _KEY: pair.key, _BEFORE: before}
        change = {
            "metadata": {"resourceVersion": metadata(found)["resourceVersion"]},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        self.cluster.patch(SECRETS, self.secret, change, self.namespace)
        log.info("made a certificate, good until %s", (now + VALID).date())
        return data

    def _trust(self, bundle: bytes) -> None:
        text = base64.b64encode(bundle).decode()
        webhooks = self.cluster.get(CONFIGURATIONS, self.configuration)["webhooks"]
        steps: list[Object] = []
        for place, webhook in enumerate(webhooks):
            if webhook["clientConfig"].get("caBundle") != text:
                path = f"/webhooks/{place}"
                steps.append({"op": "test", "path": f"{path}/name", "value": webhook["name"]})
                steps.append({"op": "add", "path": f"{path}/clientConfig/caBundle", "value": text})
        if steps:
            self.cluster.patch(CONFIGURATIONS, self.configuration, steps, how="json")


def follow(look: Look, served: Pair, serve: Callable[[Pair], None], stopped: threading.Event) -> None:
    """Serves a new certificate one look after it was published, when every API server trusts it."""
    found = served
    while not stopped.wait(LOOK_SECONDS):
        try:
            if found != served:
                serve(found)
                served = found
                log.info("serving a new certificate")
            found = look(datetime.now(UTC))
        except DsagentError as error:
            log.warning("looking after the certificate: %s", error)
