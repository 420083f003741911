"""System calls that fail on purpose: tests/native/fault.c, compiled by the test that needs it."""

import errno
import struct
import subprocess
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.command import REPOSITORY, Dsctl


def build(folder: Path) -> Path:
    """Compiles the shim; raises CalledProcessError."""
    library = folder / "fault.so"
    source = REPOSITORY / "tests" / "native" / "fault.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Fault:
    """From the `first` matching call to the `last` (0: all that follow), counted over all processes, fail."""

    call: str
    path: str
    error: int = errno.EIO
    first: int = 1
    last: int = 0


class Faulty:
    """dsctl with a fault."""

    def __init__(self, dsctl: Dsctl, library: Path, fault: Fault) -> None:
        self._count = dsctl.root.with_name(uuid.uuid4().hex)
        self._count.write_bytes(bytes(8))
        variables = {
            "LD_PRELOAD": str(library),
            "FAULT_CALL": fault.call,
            "FAULT_PATH": fault.path,
            "FAULT_ERRNO": str(fault.error),
            "FAULT_FIRST": str(fault.first),
            "FAULT_LAST": str(fault.last),
            "FAULT_COUNT": str(self._count),
        }
        self.dsctl = replace(dsctl, environment={**dsctl.environment, **variables})

    @property
    def met(self) -> int:
        """How many matching calls there were."""
        (count,) = struct.unpack("<Q", self._count.read_bytes())
        return int(count)
