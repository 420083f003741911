"""The cluster's authority, the certificates it signs, and kubeconfig files with them. All last a month."""

import base64
import ipaddress
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools.cluster.layout import API_SERVER


def make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A new private key, written as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(kind, form, serialization.NoEncryption()))
    return key


def make_authority(pki: Path) -> None:
    """`ca.crt` and `ca.key`."""
    pki.mkdir(parents=True, exist_ok=True)
    key = make_key(pki / "ca.key")
    name = _name("dsagent-cluster")
    certificate = _builder(name, name, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    _write(certificate.sign(key, hashes.SHA256()), pki / "ca.crt")


def issue(
    pki: Path,
    file: str,
    name: str,
    group: str | None = None,
    addresses: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """`FILE.crt` and `FILE.key` for a user of a group, and, with addresses or names, for a server there."""
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    authority_key = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = make_key(pki / f"{file}.key")
    certificate = _builder(_name(name, group), authority.subject, key.public_key())
    if addresses or names:
        numbers = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        others = [x509.DNSName(one) for one in names]
        certificate = certificate.add_extension(x509.SubjectAlternativeName([*numbers, *others]), critical=False)
    _write(certificate.sign(authority_key, hashes.SHA256()), pki / f"{file}.crt")


def write_kubeconfig(pki: Path, user: str, path: Path) -> None:
    """The file with which the user of `USER.crt` reaches the API server."""

    def encoded(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dsagent",
        "contexts": [{"name": "dsagent", "context": {"cluster": "dsagent", "user": user}}],
        "clusters": [
            {"name": "dsagent", "cluster": {"server": API_SERVER, "certificate-authority-data": encoded("ca.crt")}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": encoded(f"{user}.crt"),
                    "client-key-data": encoded(f"{user}.key"),
                },
            }
        ],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))


def _name(name: str, group: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
    )


def _write(certificate: x509.Certificate, path: Path) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
