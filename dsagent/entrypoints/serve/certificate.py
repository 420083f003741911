"""A certificate of the agent's own, for the API server's proxy: that encrypts, and does not look who it speaks to."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dsagent.core.errors import UsageError

LASTS = timedelta(days=3650)  # of an agent that is never restarted


def own_certificate(folder: Path, name: str) -> tuple[str, str]:
    """Writes a new key and a certificate for it that it has signed itself; gives the certificate's path and the key's.

    Raises UsageError if the package for it is not installed.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - only an agent in a cluster needs it
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'dsagent[agent]', or give --tls-cert and --tls-key"
        raise UsageError("make", "a certificate", str(error), hint) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LASTS)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    written = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    fd = os.open(folder / "key.pem", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(written)
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    return str(folder / "certificate.pem"), str(folder / "key.pem")
