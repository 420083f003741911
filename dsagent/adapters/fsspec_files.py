"""What fsspec's filesystems have in common, and where they differ: opening, listings, errors."""

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec

from dsagent.core.entries import DIRECTORY, FILE, Stamp
from dsagent.core.errors import DsagentError, NotPermitted, UsageError
from dsagent.core.ports import Location

# What filesystems call the time of the last change, and what changes with the content.
_TIMES = ("mtime", "modificationTime", "last_modified", "LastModified", "updated")
_TOKENS = ("ETag", "etag", "e_tag", "fileId", "generation", "version_id", "checksum")


Infos = list[dict[str, Any]]
"""What a filesystem tells of entries; each has at least name, type and size."""


def open_files(location: Location, failure: type[DsagentError]) -> tuple[Any, str]:
    """The filesystem and the path in it that a URL names.

    Raises UsageError for what fsspec does not know or cannot import, `failure` if the place cannot be reached.
    """
    protocol = location.url.partition("://")[0]
    options = {name: {"true": True, "false": False}.get(value, value) for name, value in location.options}
    try:
        files, root = fsspec.core.url_to_fs(location.url, **options)
    except ImportError as error:
        raise UsageError("open", location.url, str(error).rstrip("."), _pip_command(str(error))) from error
    except (ValueError, TypeError) as error:
        hint = "see the URLs that fsspec knows, and --storage-option"
        raise UsageError("open", location.url, str(error).rstrip("."), hint) from error
    except Exception as error:  # each filesystem has errors of its own
        raise _converted(failure, "open", location.url, error) from error
    if protocol == "webhdfs":
        _widen(files.session)
    return files, root.rstrip("/")


def _widen(session: Any) -> None:
    """Keeps as many connections as there are readers; requests keeps 10."""
    adapter = type(session.adapters["http://"])
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter(pool_maxsize=64))


def _pip_command(message: str) -> str:
    """What fsspec's message says is missing, as a command."""
    named = re.findall(r'"([\w.\[\]-]+)"', message)
    if not named:
        named = re.findall(r"[Ii]nstall (?:the )?'?([\w.\[\]-]+)", message) or re.findall(r"^(pyarrow)", message)
    return f"pip install {' '.join(named[:2])}" if named else "install the package that it needs"


def without_password(location: Location) -> Location:
    """The URL's password moves to the options, which are not shown."""
    password = urlsplit(location.url).password
    url = location.url.rstrip("/")
    if password is None:
        return Location(url, location.options)
    return Location(url.replace(f":{password}@", "@", 1), (*location.options, ("password", unquote(password))))


def is_webhdfs(files: Any) -> bool:
    """Whether it is HDFS through WebHDFS."""
    return "webhdfs" in files.protocol


def name_of(info: dict[str, Any]) -> bytes:
    """The last part of the path of an entry."""
    name: str = info["name"]
    return name.rstrip("/").rpartition("/")[2].encode()


def stamp_of(path: bytes, info: dict[str, Any], now_ns: int) -> Stamp:
    """`now_ns` stands in for a time that the filesystem does not tell."""
    if info["type"] == "directory":
        return Stamp(path, DIRECTORY, False, 0, 0, b"")
    if info["type"] != "file":
        return Stamp(path, "", False, 0, 0, b"")
    token = ",".join(f"{name}={info[name]}" for name in _TOKENS if info.get(name))
    mode = info.get("mode") or int(str(info.get("permission", 0)), 8)
    executable = isinstance(mode, int) and bool(mode & 0o100)
    return Stamp(path, FILE, executable, info["size"], modified_ns(info) or now_ns, token.encode())


def modified_ns(info: dict[str, Any]) -> int | None:
    """The time of the last change as Unix time in ns, or None where the filesystem does not tell it."""
    for name in _TIMES:
        value = info.get(name)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            value = value if value.tzinfo else value.replace(tzinfo=UTC)
            return round(value.timestamp() * 1e6) * 1000
        if isinstance(value, int | float):
            # WebHDFS counts milliseconds, the others seconds.
            return int(value) * 1_000_000 if name == "modificationTime" else int(value * 1e9)
    return None


@contextlib.contextmanager
def converting(failure: type[DsagentError], action: str, subject: str) -> Iterator[None]:
    """Whatever the filesystem raises becomes NotPermitted or `failure`."""
    try:
        yield
    except DsagentError:
        raise
    except Exception as error:  # each filesystem has errors of its own
        raise _converted(failure, action, subject, error) from error


def _converted(failure: type[DsagentError], action: str, subject: str, error: Exception) -> DsagentError:
    cause = str(error).partition("\n")[0].rstrip(".")[:300] or type(error).__name__
    if isinstance(error, PermissionError):
        return NotPermitted(action, subject, cause, "check the user and the rights of the path")
    return failure(action, subject, cause, "check that it exists, can be reached and is allowed")
