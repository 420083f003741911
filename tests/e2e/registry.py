"""A real registry that nodes pull from slowly, and images in it that no node has."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cluster.layout import REGISTRY
from tools.servers import free_port, running, throttle

_KB = 1000


@contextmanager
def slow_registry(directory: Path, rate: int) -> Iterator["Registry"]:
    """Serve images of `directory` where nodes look for them; a connection brings at most `rate` bytes a second."""
    address = f"127.0.0.1:{free_port()}"
    configuration = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(directory)}},
        "http": {"addr": address},
    }
    file = directory / "registry.json"
    file.write_text(json.dumps(configuration))
    with running(["docker-registry", "serve", str(file)], address), throttle(address, REGISTRY, rate // _KB):
        yield Registry(address, directory)


class Registry:
    """Takes images at `address`."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory

    def push(self, name: str, size: int) -> str:
        """Make an image of a shell and `size` random bytes; returns the name by which nodes pull it."""
        storage = ("buildah", f"--root={self._directory}/storage", f"--runroot={self._directory}/run")
        container = subprocess.run([*storage, "from", "scratch"], check=True, capture_output=True, text=True)
        with tempfile.TemporaryDirectory(dir=self._directory) as folder:
            shutil.copy2("/bin/busybox", Path(folder, "sh"))
            with Path(folder, "data").open("wb") as data:
                subprocess.run(["head", "-c", str(size), "/dev/urandom"], check=True, stdout=data)
            self._run(*storage, "copy", container.stdout.strip(), folder, "/bin")
        self._run(*storage, "commit", "--rm", container.stdout.strip(), name)
        self._run(*storage, "push", "--tls-verify=false", name, f"docker://{self._address}/{name}:1")
        return f"{REGISTRY}/{name}:1"

    def _run(self, *command: str) -> None:
        # In a mount namespace of its own, so that nothing stays mounted.
        subprocess.run(["unshare", "--mount", *command], check=True, capture_output=True)
