"""moto's S3 server on loopback: what stands in for a gateway where there is no Go."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools.servers import free_port, running


@contextmanager
def start_moto() -> Iterator[str]:
    """Serve S3 from memory, for any credentials; yields the endpoint.

    Raises:
        TimeoutError: it does not listen.
    """
    address = f"127.0.0.1:{free_port()}"
    host, port = address.split(":")
    with running([sys.executable, "-m", "moto.server", "-H", host, "-p", port], address):
        yield f"http://{address}"
