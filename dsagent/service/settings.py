"""What a node's cache can be told from outside, and where each value came from."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from dsagent.contract import ENV_CAPACITY, ENV_KEEP_FREE, ENV_ROOT
from dsagent.core.errors import UsageError
from dsagent.core.quantities import parse_size

SYSTEM_ROOT = "/var/lib/dsagent"

T = TypeVar("T")


class Settings(NamedTuple):
    """The settings of a node's cache. `origins` names for each field the flag, the variable or "default"."""

    root: Path
    """The cache's folder. Default: /var/lib/dsagent if this user can write there, as a node's users then
    share it; else dsagent under the user's cache folder, which everyone has."""
    capacity: int | None = None
    """Bytes that all versions together may take. Default: no limit of its own, as what is kept free limits
    enough."""
    keep_free: int | None = None
    """Bytes of the filesystem to leave free. Default: 15 % of it, as kubelet removes images below that."""
    workers: int | None = None
    """Worker processes, a number. Default: one for each CPU this process may use, up to 16, as more do not
    help."""
    origins: Mapping[str, str] = MappingProxyType({})

    def lines(self) -> list[str]:
        """One line a setting, with its origin."""
        return [f"{name} = {getattr(self, name)} ({origin})" for name, origin in self.origins.items()]


class Flags(NamedTuple):
    """What a caller gave; None where nothing. Sizes are text such as `500G` or bytes."""

    root: str | os.PathLike[str] | None = None
    capacity: str | int | None = None
    keep_free: str | int | None = None
    workers: int | None = None


def load_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """Settings from flags, else variables, else defaults; raises UsageError for a value that is none."""
    root, root_origin = _pick("--root", flags.root, environ, ENV_ROOT, os.fspath)
    capacity, capacity_origin = _pick("--capacity", flags.capacity, environ, ENV_CAPACITY, _size)
    keep_free, keep_free_origin = _pick("--keep-free", flags.keep_free, environ, ENV_KEEP_FREE, _size)
    if flags.workers is not None and flags.workers < 1:
        raise UsageError("use", "--workers", f"{flags.workers} is less than 1")
    return Settings(
        root=Path(os.path.abspath(default_root(environ) if root is None else root)),
        capacity=capacity,
        keep_free=keep_free,
        workers=flags.workers,
        origins={
            "root": root_origin,
            "capacity": capacity_origin,
            "keep_free": keep_free_origin,
            "workers": "default" if flags.workers is None else "--workers",
        },
    )


def default_root(environ: Mapping[str, str]) -> str:
    """The root where none is given."""
    if os.access(SYSTEM_ROOT if os.path.isdir(SYSTEM_ROOT) else os.path.dirname(SYSTEM_ROOT), os.W_OK | os.X_OK):
        return SYSTEM_ROOT
    cache = environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if os.path.isabs(cache) else os.path.expanduser("~/.cache"), "dsagent")


def _pick(
    flag: str, given: object, environ: Mapping[str, str], variable: str, read: Callable[..., T]
) -> tuple[T | None, str]:
    """The value and its origin; an empty flag is an error, an empty variable is none."""
    if given is not None:
        origin, value = flag, given
    elif environ.get(variable):
        origin, value = variable, environ[variable]
    else:
        return None, "default"
    if value == "":
        raise UsageError("use", origin, "its value is empty")
    try:
        return read(value), origin
    except UsageError as error:
        raise UsageError("use", f"{origin} {error.subject}", error.cause, error.hint) from error


def _size(value: str | int) -> int:
    return parse_size(str(value))
