"""Which sources and stores may be named, and what may be said to open them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from dsagent.adapters.beneath import require_openat2
from dsagent.agent.secrets import remember
from dsagent.contract import STORAGE_OPTIONS
from dsagent.core.errors import NotPermitted, UsageError
from dsagent.core.ports import BENEATH, Location
from dsagent.entrypoints.serve.identity import Identity

Pairs = tuple[tuple[str, str], ...]

# What pods may name without an allow-list: fsspec knows others that read the node's own files, and by http the node
# is told what it may not pass on.
REMOTE = frozenset(
    {
        *("s3", "hdfs", "webhdfs", "swebhdfs", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "hf"),
        *("ftp", "sftp", "ssh", "smb"),
    }
)
# Where a user's name in a URL is no secret.
WITH_USER = frozenset({"hdfs", "webhdfs", "swebhdfs", "ftp", "sftp", "ssh", "smb"})
# Some of what fsspec takes beside these names files of the node.
CREDENTIALS = frozenset(
    {
        *("access_key_id", "secret_access_key", "session_token", "key", "secret", "token", "username", "password"),
        *("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
    }
)
# Where requests go, and with them what the node signs.
DIRECTIONS = ("endpoint_url", "endpoint", "proxy_url")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@dataclass(frozen=True)
class Allowed:
    """URL prefixes and folders that sources and stores may be in; without any, all that the asker's role may name.
    Neither ends with a slash.
    """

    urls: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def place(self, url: str, storage: Pairs, who: Identity) -> Location:
        """A source or store that the asker may name; raises NotPermitted, UsageError."""
        protocol, separator, path = url.partition("://")
        if not separator or protocol == "file":
            return self._directory(path if separator else url, storage, who)
        refuse_secrets(url)
        if "::" in url or any(ord(character) < 0x21 for character in url):
            raise NotPermitted("open", url, "URLs with '::' or blanks are not served")
        if self.urls or self.folders:
            if not any(_is_below(url, prefix) for prefix in self.urls):
                raise _refused(url)
        elif not who.is_administrator and protocol not in REMOTE:
            raise _refused(url)
        return Location(url, storage)

    def _directory(self, path: str, storage: Pairs, who: Identity) -> Location:
        if not os.path.isabs(path):
            raise UsageError("open", path, "the agent does not know from where it counts", "write the whole path")
        if not self.folders and not self.urls and who.is_administrator:
            return Location(path, storage)
        for folder in self.folders:
            # The kernel says the same of symlinks, when it is opened.
            if _is_below(path, folder, local=True):
                return Location(path, tuple(sorted((*storage, (BENEATH, folder)))))
        raise _refused(path)


def allowed(sources: Sequence[str]) -> Allowed:
    """What the setting means; raises UsageError."""
    urls, folders = [], []
    for one in sources:
        protocol, separator, path = one.partition("://")
        if separator and protocol != "file":
            urls.append(one.rstrip("/"))
            continue
        if not os.path.isabs(path if separator else one):
            raise UsageError("use", f"sources {one}", "it is neither a URL nor a whole path")
        folders.append(os.path.normpath(path if separator else one))
    if folders:
        require_openat2()
    return Allowed(tuple(urls), tuple(folders))


def checked_storage(storage: Mapping[str, str]) -> Pairs:
    """Storage options, if none may be a secret; raises UsageError."""
    if secret := sorted(storage.keys() - STORAGE_OPTIONS):
        raise UsageError("use", "storage", f"{', '.join(secret)} may be a secret", "send it as one of the credentials")
    for name in DIRECTIONS:
        if name in storage:
            refuse_secrets(storage[name])
    return tuple(sorted(storage.items()))


def opened_by(storage: Pairs, credentials: Mapping[str, SecretStr], who: Identity) -> Pairs:
    """The credentials as sources take them, if they may be used so; raises UsageError, NotPermitted."""
    unknown = sorted(credentials.keys() - CREDENTIALS) if not who.is_administrator else []
    if BENEATH in credentials:
        unknown = [BENEATH]
    if unknown:
        known = ", ".join(sorted(CREDENTIALS))
        raise UsageError("use", "credentials", f"{', '.join(unknown)} is none that can be sent", f"known are: {known}")
    if not who.is_administrator and not credentials:
        _keep_own_credentials(dict(storage))
    revealed = {name: secret.get_secret_value() for name, secret in credentials.items()}
    remember(revealed.values())
    return tuple(sorted(revealed.items()))


def refuse_secrets(url: str) -> None:
    """Raises UsageError for a URL with something that may be a secret; says nothing of it."""
    protocol, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if "?" in rest or "#" in rest:
        what = "it has a query or a fragment, which may be a secret"
    elif at and (":" in user or protocol not in WITH_USER):
        what = "it has a user or password before the host"
    else:
        return
    raise UsageError("open", f"a URL of {protocol}", what, "send it as one of the credentials, and the URL without it")


def _keep_own_credentials(storage: Mapping[str, str]) -> None:
    """Raises NotPermitted if the node's own credentials would be used in a way that a pod has chosen."""
    if "profile" in storage:
        raise NotPermitted("use", f"profile {storage['profile']}", "it is the node's own", "send credentials")
    given = {storage[name] for name in DIRECTIONS if name in storage}
    if storage.get("skip_signature") != "true" and given - {os.environ.get(name) for name in ENDPOINTS}:
        raise NotPermitted(
            "use",
            ", ".join(sorted(given)),
            "the node's own credentials would be sent there",
            "send credentials, or skip_signature=true for what is public",
        )


def _is_below(place: str, prefix: str, local: bool = False) -> bool:
    """Whether a URL or path is the prefix or below it, at a boundary of parts, whatever it may be decoded to."""
    if place != prefix and not place.startswith(prefix.rstrip("/") + "/"):
        return False
    parts = place[len(prefix) :].split("/")
    return not any(part in (".", "..") or (not local and ("%" in part or "\\" in part)) for part in parts)


def _refused(url: str) -> NotPermitted:
    return NotPermitted(
        "open", url, "the agent's settings do not allow this source", "an administrator can allow it: --sources"
    )
