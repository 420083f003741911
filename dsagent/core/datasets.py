"""Names of datasets and versions."""

import re
from typing import NamedTuple

from dsagent.contract import CLUSTER_NAMESPACE
from dsagent.core.errors import UsageError

LOCAL_NAMESPACE = "_local"
ALGORITHM = "xxh3"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"xxh3:[0-9a-f]{32}")


class DatasetKey(NamedTuple):
    """A dataset: a name in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace == LOCAL_NAMESPACE else f"{self.namespace}/{self.name}"


def dataset_key(name: str, namespace: str = LOCAL_NAMESPACE) -> DatasetKey:
    """The key of `name`; raises UsageError unless name and namespace are valid."""
    check_namespace(namespace)
    if not _NAME.fullmatch(name):
        raise UsageError(
            "use the name",
            repr(name),
            "a dataset's name is 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends",
            "give another with --name",
        )
    return DatasetKey(namespace, name)


def check_namespace(text: str) -> str:
    """`text` if it is a namespace; raises UsageError otherwise."""
    if text not in (LOCAL_NAMESPACE, CLUSTER_NAMESPACE) and not _NAMESPACE.fullmatch(text):
        raise UsageError("use the namespace", repr(text), "a namespace is 1 to 63 of a-z, 0-9 and '-'")
    return text


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


def split_reference(reference: str, namespace: str = LOCAL_NAMESPACE) -> tuple[DatasetKey, str | None]:
    """`name` or `namespace/name`, with `@version` or without, as (key, version or None); raises UsageError.

    `namespace` is that of a name which stands alone.
    """
    dataset, at, version = reference.partition("@")
    given, separator, name = dataset.rpartition("/")
    key = dataset_key(name, given if separator else namespace)
    return key, check_version(version) if at else None


def is_reference(text: str) -> bool:
    """Whether `text` could mean a cached dataset."""
    try:
        split_reference(text)
    except UsageError:
        return False
    return True
