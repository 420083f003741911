"""Mount namespaces in which commands see a filesystem that the test's own process does not."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_TARGET = "--target="


@contextmanager
def mounts(script: str, *arguments: str) -> Iterator[list[str]]:
    """A mount namespace in which the shell script has run; gives the command to run another one in it.

    All commands are in the same one: the same filesystem is another mount in another namespace.
    """
    keep = ["unshare", "--mount", "sh", "-ec", f"{script}\necho ready\nexec sleep infinity", "sh", *arguments]
    with subprocess.Popen(keep, stdout=subprocess.PIPE) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"ready\n"
            yield ["nsenter", f"{_TARGET}{keeper.pid}", "--mount"]
        finally:
            keeper.kill()


def keeper_of(command: Sequence[str]) -> int | None:
    """The process whose mount namespace a command of `mounts` enters; None for any other command."""
    match list(command):
        case ["nsenter", target, "--mount"]:
            return int(target.removeprefix(_TARGET))
    return None
