"""Sources and stores as an agent is told of them: whole paths, options that are no secret, and credentials."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from dsagent.contract import STORAGE_OPTIONS
from dsagent.core.ports import Location

AWS_KEYS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
# Of two variables for the same, the first counts.
_STORAGE = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


class Place(NamedTuple):
    """What opens a source or store: `storage` may be seen, `credentials` may not."""

    source: str
    storage: dict[str, str]
    credentials: dict[str, str]

    def document(self) -> dict[str, Any]:
        """As dsagent.api.v1.Place has it."""
        return self._asdict()


def whole(url: str) -> str:
    """A URL as it is, a path from the top: the agent has another working directory."""
    return url if "://" in url else os.path.abspath(url)


def place(location: Location, environ: Mapping[str, str]) -> Place:
    """A location with what this user's options and environment say about its storage.

    Raises what opening it here would: UsageError, NotPermitted.
    """
    options = dict(location.options)
    if location.url.startswith("s3://"):
        options = _s3({name.lower().removeprefix("aws_"): value for name, value in options.items()}, location, environ)
    storage = {name: value for name, value in options.items() if name in STORAGE_OPTIONS}
    credentials = {name: value for name, value in options.items() if name not in STORAGE_OPTIONS}
    return Place(whole(location.url), storage, credentials)


def _s3(options: dict[str, str], location: Location, environ: Mapping[str, str]) -> dict[str, str]:
    """The options with keys, endpoint and region from the environment. Without keys there, the agent has its own."""
    public = options.get("skip_signature", "").lower() == "true"
    given = "access_key_id" in options
    found = {name: value for name, given_by in _STORAGE.items() if (value := _first(given_by, environ))}
    if not public and not given:
        if environ.get("AWS_PROFILE") or "profile" in options:
            found |= _from_profile(location)
            options = {name: value for name, value in options.items() if name != "profile"}
        else:
            found |= {name: environ[variable] for variable, name in AWS_KEYS.items() if environ.get(variable)}
    if "endpoint" in options:
        found.pop("endpoint_url", None)
    return found | options


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _from_profile(location: Location) -> dict[str, str]:
    """What the user's profile says: the agent does not read this user's ~/.aws."""
    from dsagent.adapters.s3 import configured  # noqa: PLC0415 - slow to import

    found = configured(location)
    keys = found.credentials()
    said = {"region": found.region, "endpoint_url": found.endpoint}
    if keys is not None:
        said |= {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key, "session_token": keys.token}
    return {name: value for name, value in said.items() if value}
