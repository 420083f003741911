"""Real servers on loopback, for the bench and the tests: an S3 gateway, an sshd, and latency before them.

What has to be built or downloaded is kept in `tools_directory()`; every server dies with the thread that
started it, at the latest.
"""

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

GO_PROGRAMS = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    "helm": "helm.sh/helm/v3/cmd/helm@v3.19.4",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok@v0.7.0",
    "toxiproxy": "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0",
}
START_SECONDS = 90


class ToolMissingError(Exception):
    """A program that this machine does not have and that could not be built or installed."""


@dataclass(frozen=True)
class S3Server:
    """A running gateway: each folder in `directory` is a bucket, each file in it an object."""

    address: str
    directory: Path
    access_key: str = field(default_factory=lambda: secrets.token_hex(8))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def endpoint(self) -> str:
        """The URL that S3 clients take."""
        return f"http://{self.address}"

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The variables by which S3 clients find it, or `endpoint` before it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "S3_ENDPOINT_URL": endpoint or self.endpoint,  # s5cmd's name for it
        }


def tools_directory() -> Path:
    """Where the programs are kept from one run to the next."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dsagent-tools"


def kept_program(name: str) -> Path:
    """Where one of GO_PROGRAMS is when it has been built."""
    return tools_directory() / f"{name}-{GO_PROGRAMS[name].rpartition('@')[2]}"


def go_program(name: str) -> Path:
    """Path of one of GO_PROGRAMS, built if it is not there yet.

    Raises:
        ToolMissingError: there is no Go, or the build failed.
    """
    package = GO_PROGRAMS[name]
    program = kept_program(name)
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise ToolMissingError(f"{name} is built with Go, and go is not on PATH")
    building = tools_directory() / f"go-{name}-{os.getpid()}"
    building.mkdir(parents=True, exist_ok=True)
    try:
        environment = {**os.environ, "GOBIN": str(building)}
        done = subprocess.run(["go", "install", package], check=False, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise ToolMissingError(f"go install {package}: {done.stderr.strip()}")
        (built,) = building.iterdir()
        built.rename(program)
    finally:
        shutil.rmtree(building)
    return program


def free_port() -> int:
    """A TCP port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def start_versitygw(directory: Path) -> Iterator[S3Server]:
    """Serve `directory` (created; on a filesystem with extended attributes) as S3.

    Raises:
        ToolMissingError: the gateway could not be built.
        TimeoutError: it does not listen.
    """
    directory.mkdir(parents=True, exist_ok=True)
    server = S3Server(f"127.0.0.1:{free_port()}", directory)
    keys = ["--access", server.access_key, "--secret", server.secret_key]
    command = [
        str(go_program("versitygw")),
        "--quiet",
        "--port",
        server.address,
        *keys,
        "posix",
        str(directory),
    ]
    with running(command, server.address):
        yield server


@contextmanager
def start_toxiproxy(upstream: str, latency_ms: int) -> Iterator[str]:
    """Listen before `upstream` (host:port) and delay what it answers; the address to use instead.

    Raises:
        ToolMissingError: the proxy could not be built.
        TimeoutError: it does not listen.
    """
    listen = f"127.0.0.1:{free_port()}"
    with _toxic(upstream, listen, "latency", {"latency": latency_ms}):
        yield listen


@contextmanager
def throttle(upstream: str, listen: str, rate: int) -> Iterator[None]:
    """Listen at `listen` (host:port) before `upstream`; each connection brings at most `rate` kilobytes a second.

    Raises:
        ToolMissingError: the proxy could not be built.
        TimeoutError: it does not listen.
    """
    with _toxic(upstream, listen, "bandwidth", {"rate": rate}):
        yield


@contextmanager
def _toxic(upstream: str, listen: str, kind: str, attributes: Mapping[str, int]) -> Iterator[None]:
    api = f"127.0.0.1:{free_port()}"
    host, port = api.split(":")
    with running([str(go_program("toxiproxy")), "-host", host, "-port", port], api):
        _post(api, "/proxies", {"name": "slow", "listen": listen, "upstream": upstream})
        _post(api, "/proxies/slow/toxics", {"name": "slow", "type": kind, "attributes": attributes})
        yield


@contextmanager
def start_sshd(directory: Path) -> Iterator[str]:
    """An sshd with keys and configuration of its own in `directory`; yields host:port.

    Raises:
        ToolMissingError: OpenSSH's server or ssh-keygen is not installed.
        TimeoutError: it does not listen.
    """
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh-keygen") is None:
        raise ToolMissingError("sshd is not installed; on Debian: apt install openssh-server")
    directory.mkdir(parents=True, exist_ok=True)
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)
    shutil.copyfile(directory / "user.pub", directory / "authorized")
    # sshd wants this folder whatever its configuration says.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    lines = [
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        f"HostKey {directory}/host",
        f"AuthorizedKeysFile {directory}/authorized",
        f"PidFile {directory}/sshd.pid",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        "Subsystem sftp internal-sftp",
    ]
    (directory / "config").write_text("\n".join(lines) + "\n")
    with running([sshd, "-D", "-e", "-f", str(directory / "config")], f"127.0.0.1:{port}"):
        yield f"127.0.0.1:{port}"


@contextmanager
def mount_sshfs(address: str, keys: Path, remote: Path, mount: Path) -> Iterator[Path]:
    """Mount `remote` of the sshd at `address` on `mount` (created), with sshfs's defaults.

    Raises:
        ToolMissingError: sshfs is not installed.
        subprocess.CalledProcessError: it did not mount.
    """
    if shutil.which("sshfs") is None:
        raise ToolMissingError("sshfs is not installed; on Debian: apt install sshfs")
    mount.mkdir(parents=True, exist_ok=True)
    host, port = address.split(":")
    options = [
        f"IdentityFile={keys}/user",
        f"UserKnownHostsFile={keys}/known",
        "StrictHostKeyChecking=no",
        "BatchMode=yes",
        "LogLevel=ERROR",
    ]
    flags = [part for option in options for part in ("-o", option)]
    subprocess.run(["sshfs", f"{host}:{remote}", mount, "-p", port, *flags], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=True)  # also where a file is still open


@contextmanager
def running(command: Sequence[str], address: str) -> Iterator[None]:
    """Run a server until the block ends; the block begins when `address` takes connections.

    Raises:
        TimeoutError: it ended at once, or does not listen within START_SECONDS.
    """
    with ExitStack() as stack:
        log = stack.enter_context(open(os.devnull, "wb"))
        server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log)
        stack.callback(_end, server)
        _await(server, address, command[0])
        yield


def _await(server: subprocess.Popen[bytes], address: str, name: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"{name} does not listen on {address} (exit status {server.poll()})")


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _post(api: str, path: str, document: Mapping[str, object]) -> None:
    connection = http.client.HTTPConnection(api, timeout=10)
    connection.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status >= 300:
        raise ConnectionError(f"POST {path}: {answer.status} {answer.read().decode()}")
    connection.close()
