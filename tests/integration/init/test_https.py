"""dsagent-init over https."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import agent
from tests.support.certificates import Certificates, make_certificates
from tests.support.init import UID, Pod


@pytest.fixture
def certificates(scratch: Path) -> Certificates:
    return make_certificates(scratch / "tls")


@pytest.fixture
def pod(scratch: Path, certificates: Certificates) -> Iterator[Pod]:
    """A pod whose agent serves https, and knows the pod's token."""
    source = scratch / "nfs" / "images"
    source.mkdir(parents=True)
    (source / "file").write_bytes(os.urandom(1000))
    (scratch / "tokens").write_text(f"- {{token: pod-secret, role: pod, namespace: research, uid: {UID}}}\n")
    (scratch / "token").write_text("pod-secret")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = ["--tokens", str(scratch / "tokens"), "--sources", str(source.parent), "--tcp", address]
    tls = ["--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key)]
    environment = {
        "DSAGENT_AGENT": f"https://{address}",
        "DSAGENT_CA_FILE": str(certificates.authority),
        "DSAGENT_TOKEN_FILE": str(scratch / "token"),
        "DSAGENT_DATASETS": f"images={source}",
    }
    with agent(scratch / "root", *flags, *tls):
        yield Pod(scratch / "pod", environment)


def test_asks_over_https(pod: Pod) -> None:
    done = pod.run()
    assert done.code == 0, done
    assert os.listdir(pod.datasets / "images") == ["file"]


def test_needs_a_token(pod: Pod) -> None:
    done = pod.having(DSAGENT_TOKEN_FILE="").run()
    assert (done.code, "there is no token" in done.err) == (11, True), done


@pytest.mark.parametrize("authority", ["another's", "the system's"])
def test_trusts_nobody_else(pod: Pod, scratch: Path, authority: str) -> None:
    other = str(make_certificates(scratch / "other").authority) if authority == "another's" else ""
    done = pod.having(DSAGENT_CA_FILE=other).run()
    assert (done.code, "name its authority's file in DSAGENT_CA_FILE" in done.err) == (7, True), done


def test_trusts_no_other_name(pod: Pod) -> None:
    address = pod.environment["DSAGENT_AGENT"].replace("127.0.0.1", "localhost")
    done = pod.having(DSAGENT_AGENT=address).run()
    assert (done.code, "Hostname mismatch" in done.err) == (7, True), done


def test_an_authority_that_is_none(pod: Pod, scratch: Path) -> None:
    for file in (scratch / "missing", scratch / "token"):
        done = pod.having(DSAGENT_CA_FILE=str(file)).run()
        assert (done.code, f"DSAGENT_CA_FILE names {file}, which holds no certificates" in done.err) == (2, True), done
