"""A bucket: how it is reached, how its keys are listed, and what its errors mean.

Objects are read and written by obstore. Listing is done here: obstore turns the key `a/` into `a`, so that
a folder made by a console could not be told from an empty file, and stops at the first key that it cannot
express.
"""

import contextlib
import os
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote_plus

from dsagent.core.errors import DsagentError, InsufficientStorage, NotPermitted, UsageError
from dsagent.core.ports import Location

try:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.configprovider import ConfiguredEndpointProvider
    from botocore.credentials import Credentials
    from botocore.exceptions import BotoCoreError
    from botocore.httpsession import URLLib3Session
    from botocore.session import Session
    from botocore.utils import get_environ_proxies
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import S3Store
except ImportError as error:
    raise UsageError(
        "open", "an s3:// URL", f"its packages are not installed ({error})", "pip install 'dsagent[s3]'"
    ) from error

DEFAULT_REGION = "us-east-1"
CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout"})
REQUEST_SECONDS = 60
# A connection that is refused is given up after some 10 s; obstore by itself tries for 3 minutes.
MAX_RETRIES = 7
FIRST_BACKOFF = timedelta(seconds=0.1)
MAX_BACKOFF = timedelta(seconds=5)

_CREDENTIALS_HINT = (
    "check AWS_PROFILE, ~/.aws or AWS_ACCESS_KEY_ID; for a public bucket: --storage-option skip_signature=true"
)
_ANSWER = re.compile(r"<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_REFUSED = re.compile(
    r"\b40[13] (Forbidden|Unauthorized)|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch)<"
)
_FULL = re.compile(r"<Code>(QuotaExceeded|\w*StorageFull|InsufficientStorage\w*)<|\b507 Insufficient")


class Listed(NamedTuple):
    """One key of a listing; `modified` is Unix time in nanoseconds."""

    key: str
    size: int
    modified: int
    etag: str


class ListingError(Exception):
    """A request for keys was not answered with keys; the text is status and body."""


Failure = (BaseError, BotoCoreError, ListingError, OSError, ValueError)
"""What obstore, botocore and the listing raise."""


class Bucket:
    """The bucket and the prefix in it that a location names; `prefix` is empty or ends with a slash.

    Options are those of obstore's S3 store (with or without `aws_` before them), some of its HTTP client's,
    and `profile`. Raises UsageError for a URL or option that cannot be meant, and NotPermitted without
    credentials.
    """

    def __init__(self, location: Location) -> None:
        self.name, _, path = location.url.removeprefix("s3://").partition("/")
        path = path.rstrip("/")
        if not self.name or (path and any(part in ("", ".", "..") for part in path.split("/"))):
            raise UsageError("open", location.url, "it is not written s3://BUCKET/PREFIX")
        self.location = Location(f"s3://{self.name}/{path}".rstrip("/"), location.options)
        self.prefix = path + "/" if path else ""
        try:
            self._connect({name.lower().removeprefix("aws_"): value for name, value in location.options})
        except (BaseError, BotoCoreError, ValueError, OSError) as error:
            raise UsageError(
                "open", self.location.url, _first_line(error), "see --storage-option and ~/.aws"
            ) from error

    def _connect(self, options: dict[str, Any]) -> None:
        session = Session(profile=options.pop("profile", None))
        self._region = (
            options.pop("region", None)
            or os.environ.get("AWS_REGION")
            or session.get_config_variable("region")
            or DEFAULT_REGION
        )
        endpoint = options.pop("endpoint_url", None) or options.pop("endpoint", None) or _configured_endpoint(session)
        self._base = _base_url(endpoint, self.name, self._region, options)
        client = {name: options.pop(name) for name in CLIENT_OPTIONS & options.keys()}
        self._authority = session.get_config_variable("ca_bundle")
        if endpoint:
            options["endpoint"] = endpoint
        if self._base.startswith("http://"):
            client.setdefault("allow_http", True)
        elif self._authority:
            client["root_certificate"] = Path(self._authority).read_bytes()
        provider = self._credential_provider(session, options)
        self.store: S3Store = S3Store(
            self.name,
            region=self._region,
            client_options=cast("Any", {"timeout": timedelta(seconds=REQUEST_SECONDS), **client}),
            retry_config={
                "max_retries": MAX_RETRIES,
                "retry_timeout": timedelta(seconds=REQUEST_SECONDS),
                "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": MAX_BACKOFF, "base": 2},
            },
            credential_provider=provider,
            **options,
        )

    def _credential_provider(self, session: Session, options: dict[str, Any]) -> Boto3CredentialProvider | None:
        """Where obstore gets credentials; `_credentials` are the same ones, or None for a public bucket."""
        self._credentials: Credentials | None = None
        if str(options.get("skip_signature", "")).lower() == "true":
            return None
        if "access_key_id" in options:
            secret = options.get("secret_access_key"), options.get("session_token") or options.get("token")
            self._credentials = Credentials(options["access_key_id"], *secret)
            return None
        self._credentials = session.get_credentials()
        if self._credentials is None:
            raise NotPermitted("open", self.location.url, "no credentials were found", _CREDENTIALS_HINT)
        return Boto3CredentialProvider(session)

    def keys(self, prefix: str) -> Iterator[Listed]:
        """All keys that begin with `prefix`, in the store's order; the next page is asked for meanwhile."""
        http = URLLib3Session(self._authority or True, get_environ_proxies(self._base), timeout=REQUEST_SECONDS)
        parameters = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        with contextlib.closing(http), ThreadPoolExecutor(1) as executor:
            page = executor.submit(self._page, http, parameters)
            while True:
                answer = page.result()
                token = answer.findtext("{*}NextContinuationToken")
                if token:
                    page = executor.submit(self._page, http, {**parameters, "continuation-token": token})
                yield from _listed(answer)
                if not token:
                    return

    def _page(self, http: URLLib3Session, parameters: dict[str, str]) -> ET.Element:
        for pause in (*(FIRST_BACKOFF.total_seconds() * 2**attempt for attempt in range(MAX_RETRIES)), None):
            try:
                answer = http.send(self._signed(parameters))
            except BotoCoreError:
                if pause is None:
                    raise
            else:
                if answer.status_code == 200:
                    return ET.fromstring(answer.content)  # noqa: S314 - expat itself bounds what entities expand to
                if pause is None or (answer.status_code < 500 and answer.status_code != 429):
                    raise ListingError(f"{answer.status_code} {answer.text}")
            time.sleep(pause)
        raise AssertionError

    def _signed(self, parameters: dict[str, str]) -> Any:
        request = AWSRequest("GET", self._base, params=parameters)
        if self._credentials:
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return request.prepare()


def _configured_endpoint(session: Session) -> str | None:
    """AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or the profile's endpoint_url."""
    provider = ConfiguredEndpointProvider(session.full_config, session.get_scoped_config(), "s3")
    endpoint: str | None = provider.provide()
    return endpoint


def _base_url(endpoint: str | None, bucket: str, region: str, options: dict[str, Any]) -> str:
    """The bucket's own URL, by obstore's rules."""
    virtual = str(options.get("virtual_hosted_style_request", "")).lower() == "true"
    if virtual:
        return (endpoint or f"https://{bucket}.s3.{region}.amazonaws.com").rstrip("/") + "/"
    return f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"


def _listed(page: ET.Element) -> Iterator[Listed]:
    decode = unquote_plus if page.findtext("{*}EncodingType") == "url" else str
    for contents in page.iterfind("{*}Contents"):
        field = {child.tag.rpartition("}")[2]: child.text or "" for child in contents}
        modified = datetime.fromisoformat(field["LastModified"])
        nanoseconds = round(modified.timestamp() * 1000) * 1_000_000
        yield Listed(decode(field["Key"]), int(field["Size"]), nanoseconds, field.get("ETag", ""))


def converted(failure: type[DsagentError], action: str, subject: str, error: BaseException) -> DsagentError:
    """What an error of the store means to the user: NotPermitted, InsufficientStorage, else `failure`."""
    text = str(error)
    answer = _ANSWER.search(text)
    cause = f"{answer[2].rstrip('.')} ({answer[1]})" if answer else _first_line(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(text):
        return NotPermitted(action, subject, cause, _CREDENTIALS_HINT)
    if _FULL.search(text):
        return InsufficientStorage(action, subject, cause, "raise the quota, or delete what is not needed")
    return failure(action, subject, cause, "check the URL, AWS_ENDPOINT_URL and AWS_REGION")


def is_beyond_end(error: BaseError) -> bool:
    """Whether a range was asked for that begins where the object has ended already."""
    return "<Code>InvalidRange<" in str(error) or "416 Range Not Satisfiable" in str(error)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".")[:300] or type(error).__name__
