"""Names of datasets and versions."""

import re
from dataclasses import dataclass

from dsagent.core.errors import UsageError

LOCAL_NAMESPACE = "_local"
ALGORITHM = "xxh3"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"xxh3:[0-9a-f]{32}")


@dataclass(frozen=True, order=True)
class DatasetKey:
    """A dataset: a name in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace == LOCAL_NAMESPACE else f"{self.namespace}/{self.name}"


def dataset_key(name: str, namespace: str = LOCAL_NAMESPACE) -> DatasetKey:
    """The key of `name`; raises UsageError unless the name is valid."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "use the name",
            repr(name),
            "a dataset's name is 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends",
            "give another with --name",
        )
    return DatasetKey(namespace, name)


def is_name(text: str) -> bool:
    """Whether `text` is a valid dataset name."""
    return _NAME.fullmatch(text) is not None


def name_from_source(source: str) -> str:
    """The last part of a path or URL in lower case, as the default name; raises UsageError if it is no valid name."""
    return dataset_key(source.rstrip("/").rpartition("/")[2].lower()).name


def version_text(digest: bytes) -> str:
    """The written form of a content digest: `xxh3:` and 32 hex digits."""
    return f"{ALGORITHM}:{digest.hex()}"


def is_version(text: str) -> bool:
    """Whether `text` is the written form of a version."""
    return _VERSION.fullmatch(text) is not None


def check_version(text: str) -> str:
    """`text` if it is the written form of a version; raises UsageError otherwise."""
    if not is_version(text):
        raise UsageError("use the version", repr(text), "a version is written xxh3: and 32 hexadecimal digits")
    return text


def split_reference(reference: str) -> tuple[str, str | None]:
    """`name@version` or `name` as (name, version or None); both parts are checked."""
    name, at, version = reference.partition("@")
    return dataset_key(name).name, check_version(version) if at else None
