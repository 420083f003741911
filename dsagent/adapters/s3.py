"""A bucket: where it is, who asks, and what its errors mean.

Where the environment says it all, botocore is not loaded: that takes 0.3 s of CPU time in every process.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from dsagent.core.errors import DsagentError, InsufficientStorage, NotPermitted, UsageError
from dsagent.core.ports import Location

if TYPE_CHECKING:
    from dsagent.adapters.s3_listing import Listed

P = ParamSpec("P")
T = TypeVar("T")

_MISSING = "its packages are not installed"
_INSTALL = "pip install 'dsagent[s3]'"

try:
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import S3Store
except ImportError as error:
    raise UsageError("open", "an s3:// URL", f"{_MISSING} ({error})", _INSTALL) from error

DEFAULT_REGION = "us-east-1"
CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout"})
REQUEST_SECONDS = 60
# A connection that is refused is given up after some 10 s; obstore by itself tries for 3 minutes.
MAX_RETRIES = 7
MAX_BACKOFF = timedelta(seconds=5)

_CREDENTIALS_HINT = (
    "check AWS_PROFILE, ~/.aws or AWS_ACCESS_KEY_ID; for a public bucket: --storage-option skip_signature=true"
)
_ANSWER = re.compile(r"<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_REFUSED = re.compile(
    r"\b40[13] (Forbidden|Unauthorized)|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch)<"
)
_FULL = re.compile(r"<Code>(QuotaExceeded|\w*StorageFull|InsufficientStorage\w*)<|\b507 Insufficient")

Failure = (BaseError, OSError, ValueError)
"""What obstore and the listing raise."""


class Credentials(NamedTuple):
    """An access key; `token` is empty unless the key is a temporary one."""

    access_key: str
    secret_key: str
    token: str = ""


@dataclass(frozen=True)
class Access:
    """Where requests go and who signs them. `provider` is for obstore: it is asked again when keys expire."""

    region: str
    endpoint: str | None
    authority: str | None
    credentials: Callable[[], Credentials | None]
    provider: Any = None


class Bucket:
    """The bucket and the prefix in it that a location names; `prefix` is empty or ends with a slash.

    Options are those of obstore's S3 store (with or without `aws_` before them), some of its HTTP client's, and
    `profile`. Raises UsageError for a URL or option that cannot be meant, and NotPermitted without credentials.
    """

    def __init__(self, location: Location) -> None:
        self.name, _, path = location.url.removeprefix("s3://").partition("/")
        path = path.rstrip("/")
        if not self.name or (path and any(part in ("", ".", "..") for part in path.split("/"))):
            raise UsageError("open", location.url, "it is not written s3://BUCKET/PREFIX")
        self.location = Location(f"s3://{self.name}/{path}".rstrip("/"), location.options)
        self.prefix = path + "/" if path else ""
        options = _options(location)
        try:
            access = _from_environment(options) or _from_configuration(options, self.location.url)
            self._connect(access, options)
        except (BaseError, ValueError, TypeError, OSError) as error:
            raise UsageError(
                "open", self.location.url, _first_line(error), "see --storage-option and ~/.aws"
            ) from error

    def pages(self, prefix: str) -> "Iterator[list[Listed]]":
        """See Lister.pages."""
        from dsagent.adapters.s3_listing import Lister  # noqa: PLC0415 - slow to import, and workers never list

        access = self._access
        return Lister(self._base, access.region, access.credentials, access.authority).pages(prefix)

    def _connect(self, access: Access, options: dict[str, Any]) -> None:
        client = {name: options.pop(name) for name in CLIENT_OPTIONS & options.keys()}
        base = _base_url(access, self.name, options.get("virtual_hosted_style_request"))
        if base.startswith("http://"):
            client.setdefault("allow_http", True)
        elif access.authority:
            client["root_certificate"] = Path(access.authority).read_bytes()
        options["region"] = access.region
        if access.endpoint:
            options["endpoint"] = access.endpoint
        self.store: S3Store = S3Store(
            self.name,
            client_options=cast("Any", {"timeout": timedelta(seconds=REQUEST_SECONDS), **client}),
            retry_config={
                "max_retries": MAX_RETRIES,
                "retry_timeout": timedelta(seconds=REQUEST_SECONDS),
                "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": MAX_BACKOFF, "base": 2},
            },
            credential_provider=access.provider,
            **options,
        )
        self._access, self._base = access, base


def configured(location: Location) -> Access:
    """What the profile that options or environment name says; raises UsageError, NotPermitted."""
    return _from_configuration(_options(location), location.url)


def _options(location: Location) -> dict[str, Any]:
    """A location's options by obstore's names."""
    options: dict[str, Any] = {name.lower().removeprefix("aws_"): value for name, value in location.options}
    if "endpoint_url" in options:
        options["endpoint"] = options.pop("endpoint_url")
    return options


def _from_environment(options: dict[str, Any]) -> Access | None:
    """What options and environment say, or None where a profile or a configuration file may say more."""
    get = os.environ.get
    public = str(options.get("skip_signature", "")).lower() == "true"
    key = options.get("access_key_id"), options.get("secret_access_key")
    token = options.get("session_token")
    if not public and key == (None, None) and not get("AWS_PROFILE") and "profile" not in options:
        key = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
        token = get("AWS_SESSION_TOKEN")
    region = options.get("region") or get("AWS_REGION") or get("AWS_DEFAULT_REGION")
    endpoint = options.get("endpoint") or get("AWS_ENDPOINT_URL_S3") or get("AWS_ENDPOINT_URL")
    file = os.path.expanduser(get("AWS_CONFIG_FILE") or "~/.aws/config")
    if not (public or all(key)) or (not (region and endpoint) and os.path.exists(file)):
        return None
    credentials = None if public else Credentials(str(key[0]), str(key[1]), token or "")
    return Access(region or DEFAULT_REGION, endpoint, get("AWS_CA_BUNDLE"), lambda: credentials)


def _from_configuration(options: dict[str, Any], url: str) -> Access:
    """What botocore finds in ~/.aws, in the environment, or on the machine itself."""
    try:
        from botocore.configprovider import ConfiguredEndpointProvider  # noqa: PLC0415 - slow to import
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("open", url, f"{_MISSING} ({error})", _INSTALL) from error
    try:
        session = Session(profile=options.pop("profile", None))
        region = options.get("region") or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        configured = ConfiguredEndpointProvider(session.full_config, session.get_scoped_config(), "s3")
        endpoint = options.get("endpoint") or configured.provide()
        authority = session.get_config_variable("ca_bundle")
        found = session.get_credentials()
    except BotoCoreError as error:
        raise UsageError("open", url, str(error), "see ~/.aws") from error
    if found is None:
        raise NotPermitted("open", url, "no credentials were found", _CREDENTIALS_HINT)

    def credentials() -> Credentials:
        frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    provider = Boto3CredentialProvider(session)
    return Access(region or DEFAULT_REGION, endpoint, authority, credentials, provider)


def _base_url(access: Access, bucket: str, virtual: str | None) -> str:
    """The bucket's own URL, by obstore's rules."""
    if str(virtual).lower() == "true":
        return (access.endpoint or f"https://{bucket}.s3.{access.region}.amazonaws.com").rstrip("/") + "/"
    return f"{(access.endpoint or f'https://s3.{access.region}.amazonaws.com').rstrip('/')}/{bucket}"


def interruptibly(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Calls obstore, which looks for no signals while it waits: the main thread must not wait in it."""
    if threading.current_thread() is not threading.main_thread():
        return call(*args, **options)
    executor = ThreadPoolExecutor(1)
    try:
        return executor.submit(call, *args, **options).result()
    finally:
        executor.shutdown(wait=False)


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
