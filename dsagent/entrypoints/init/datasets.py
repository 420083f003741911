"""DSAGENT_DATASETS: what the pod wants. Its text may hold credentials, so no error repeats it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dsagent.contract import ENV_DATASETS, ExitCode
from dsagent.entrypoints.init.failure import Failure

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"xxh3:[0-9a-f]{32}")
_TEXTS = ("name", "source", "version", "environ")
_FIELDS = {**dict.fromkeys(_TEXTS, str), "options": dict, "credentials": dict, "cluster": bool}
_KINDS = {str: "a string", dict: "an object", bool: "true or false"}

_EXAMPLE = "write for example imagenet=s3://bucket/imagenet,coco=/mnt/nfs/coco"
_JSON_EXAMPLE = 'write for example [{"name": "imagenet", "source": "s3://bucket/imagenet", "options": {}}]'
_NAME_RULE = "a name is 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends"

_S3_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_S3_KEY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
# Of two for the same, the first counts.
_S3_OPTIONS = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
_HDFS_OPTIONS = {"user": ("HADOOP_USER_NAME",)}
_HDFS = ("hdfs://", "webhdfs://")


class Wanted(NamedTuple):
    """One dataset that the pod asks for, in the terms of the agent's API. `cluster`: it is a ClusterDataset."""

    name: str
    source: str
    version: str | None
    options: Mapping[str, Any]
    credentials: Mapping[str, str]
    cluster: bool = False

    @property
    def directory(self) -> str | None:
        """The source's path, or None if it is a URL that is no file's."""
        path = self.source.removeprefix("file://")
        return None if "://" in path else path

    def document(self) -> dict[str, Any]:
        """What the agent is sent."""
        return self._asdict()


def parse_datasets(text: str, environ: Mapping[str, str]) -> tuple[Wanted, ...]:
    """The datasets, each with what the environment says about its storage; raises Failure."""
    documents = _from_json(text) if text.lstrip()[:1] in ("[", "{") else _from_list(text)
    datasets = tuple(_wanted(place, document, environ) for place, document in enumerate(documents, 1))
    if not datasets:
        raise _bad("it names no dataset", _EXAMPLE)
    names = [one.name for one in datasets]
    for name in names:
        if names.count(name) > 1:
            raise _bad(f"it names {name} more than once", "give each a name of its own")
    return datasets


def _from_list(text: str) -> Iterator[dict[str, Any]]:
    for place, item in enumerate(text.split(","), 1):
        name, equals, source = item.strip().partition("=")
        if not item.strip():
            continue
        if not equals:
            raise _bad(f"entry {place} has no '='", f"{_EXAMPLE}, or JSON if a source has a comma in it")
        name, at, version = name.strip().partition("@")
        yield {"name": name, "source": source.strip(), **({"version": version} if at else {})}


def _from_json(text: str) -> list[dict[str, Any]]:
    try:
        documents = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise _bad(f"it is no JSON{where}", _JSON_EXAMPLE) from None  # the cause holds the text
    if not isinstance(documents, list):
        raise _bad("its JSON is no list", _JSON_EXAMPLE)
    for place, document in enumerate(documents, 1):
        _check_fields(place, document)
    return documents


def _check_fields(place: int, document: object) -> None:
    if not isinstance(document, dict):
        raise _bad(f"entry {place} is no object", _JSON_EXAMPLE)
    for field in document:
        if field not in _FIELDS:
            raise _bad(f"entry {place} has a field that is none of {', '.join(_FIELDS)}", _JSON_EXAMPLE)
    for field, kind in _FIELDS.items():
        if document.get(field) is not None and not isinstance(document[field], kind):
            raise _bad(f"the {field} of entry {place} is not {_KINDS[kind]}", _JSON_EXAMPLE)
    pairs = {
        "storage": (document.get("options") or {}).get("storage") or {},
        "credentials": document.get("credentials") or {},
    }
    for field, found in pairs.items():
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise _bad(f"the {field} of entry {place} is no object whose values are strings", _JSON_EXAMPLE)


def _wanted(place: int, document: Mapping[str, Any], environ: Mapping[str, str]) -> Wanted:
    name, source, version = document.get("name") or "", document.get("source") or "", document.get("version")
    if not _NAME.fullmatch(name):
        raise _bad(f"entry {place} has no valid name: {_NAME_RULE}", _EXAMPLE)
    if version is not None and not _VERSION.fullmatch(version):
        raise _bad(f"the version of {name} is none", "write it as xxh3: and 32 hexadecimal digits")
    options, credentials = document.get("options") or {}, document.get("credentials") or {}
    wanted = Wanted(name, source, version, options, credentials, bool(document.get("cluster")))
    if wanted.directory is not None and not wanted.directory.startswith("/"):
        cause = f"the source of {name} is neither a URL nor an absolute path" if source else f"{name} has no source"
        raise _bad(cause, _EXAMPLE)
    prefix = document.get("environ") or ""
    own = {key.removeprefix(prefix): value for key, value in environ.items() if key.startswith(prefix)}
    return _with_storage(wanted, own)


def _with_storage(wanted: Wanted, environ: Mapping[str, str]) -> Wanted:
    """Adds what the environment says about the storage; what DSAGENT_DATASETS itself says comes before it."""
    places = [wanted.source, str(wanted.options.get("pack_to") or "")]
    names: dict[str, tuple[str, ...]] = {}
    credentials = wanted.credentials
    if any(place.startswith("s3://") for place in places):
        names.update(_S3_OPTIONS)
        credentials = credentials or _s3_credentials(environ)
    if any(place.startswith(_HDFS) for place in places):
        names.update(_HDFS_OPTIONS)
    found = {
        option: next((environ[name] for name in given if environ.get(name)), "") for option, given in names.items()
    }
    storage = {**{option: value for option, value in found.items() if value}, **(wanted.options.get("storage") or {})}
    options = {**wanted.options, "storage": storage} if storage else wanted.options
    return wanted._replace(options=options, credentials=credentials)


def _s3_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in _S3_KEY if not environ.get(name)]
    if len(missing) == len(_S3_KEY):
        return {}
    if missing:
        (given,) = set(_S3_KEY) - set(missing)
        raise Failure(ExitCode.USAGE, f"{missing[0]} is not set, but {given} is; set both, or none of them")
    return {field: environ[name] for name, field in _S3_CREDENTIALS.items() if environ.get(name)}


def _bad(cause: str, instead: str) -> Failure:
    return Failure(ExitCode.USAGE, f"{ENV_DATASETS} cannot be used: {cause}; {instead}")
