"""Listing a bucket.

obstore lists as well, but it turns the key `a/` into `a`, so that a folder made by a console could not be told from
an empty file, and stops at the first key that it cannot express. botocore lists everything, at 150 µs a key.
"""

import contextlib
import hashlib
import hmac
import http.client
import ssl
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote_plus, urlsplit
from urllib.request import getproxies, proxy_bypass

from dsagent.adapters.s3 import Credentials

ATTEMPTS = 8
FIRST_PAUSE = 0.1
TIMEOUT_SECONDS = 60
_NO_BODY = hashlib.sha256(b"").hexdigest()


class Listed(NamedTuple):
    """One key of a listing; `modified` is Unix time in nanoseconds."""

    key: str
    size: int
    modified: int
    etag: str


class ListingError(OSError):
    """A request for keys was not answered with keys; the text says what came instead."""


class Lister:
    """Lists the bucket whose own URL is `base`. `credentials` gives the current ones, or None for a public bucket;
    `authority` is a file with certificates, or None for the system's.
    """

    def __init__(
        self, base: str, region: str, credentials: Callable[[], Credentials | None], authority: str | None
    ) -> None:
        self._base = urlsplit(base)
        self._region = region
        self._credentials = credentials
        self._authority = authority

    def pages(self, prefix: str) -> Iterator[list[Listed]]:
        """All keys that begin with `prefix`, in the store's order; the next page is asked for meanwhile.

        Raises ListingError.
        """
        parameters = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        executor = ThreadPoolExecutor(1)
        with contextlib.closing(self._connect()) as connection, _left_alone(executor):
            page = executor.submit(self._page, connection, parameters)
            while True:
                answer = page.result()
                token = answer.findtext("{*}NextContinuationToken")
                if token:
                    page = executor.submit(self._page, connection, {**parameters, "continuation-token": token})
                yield _listed(answer)
                if not token:
                    return

    def _connect(self) -> http.client.HTTPConnection:
        scheme, host, port = self._base.scheme, self._base.hostname or "", self._base.port
        proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        through = urlsplit(proxy) if proxy else None
        reached = (through.hostname or "", through.port) if through else (host, port)
        if scheme == "http":
            return http.client.HTTPConnection(*reached, timeout=TIMEOUT_SECONDS)
        context = ssl.create_default_context(cafile=self._authority)
        connection = http.client.HTTPSConnection(*reached, timeout=TIMEOUT_SECONDS, context=context)
        if through:
            connection.set_tunnel(host, port)
        return connection

    def _page(self, connection: http.client.HTTPConnection, parameters: dict[str, str]) -> ET.Element:
        for attempt in range(ATTEMPTS):
            try:
                status, body = self._request(connection, parameters)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if attempt + 1 == ATTEMPTS:
                    raise ListingError(f"{self._base.netloc}: {error}") from error
            else:
                if status == http.HTTPStatus.OK:
                    return _parsed(body)
                if attempt + 1 == ATTEMPTS or not (status >= 500 or status == http.HTTPStatus.TOO_MANY_REQUESTS):
                    raise ListingError(f"{status} {body.decode(errors='replace')}")
            time.sleep(FIRST_PAUSE * 2**attempt)
        raise AssertionError

    def _request(self, connection: http.client.HTTPConnection, parameters: dict[str, str]) -> tuple[int, bytes]:
        query = "&".join(f"{name}={quote(parameters[name], safe='-_.~')}" for name in sorted(parameters))
        path = quote(self._base.path or "/", safe="/-_.~")
        # A proxy for plain HTTP wants the whole URL.
        prefix = (
            ""
            if connection.host == self._base.hostname or self._base.scheme == "https"
            else f"http://{self._base.netloc}"
        )
        connection.request("GET", f"{prefix}{path}?{query}", headers=self._headers(path, query))
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _headers(self, path: str, query: str) -> dict[str, str]:
        """With a signature of the kind AWS calls version 4."""
        headers = {"host": self._base.netloc}
        credentials = self._credentials()
        if credentials is None:
            return headers
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers |= {"x-amz-content-sha256": _NO_BODY, "x-amz-date": now}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        names = ";".join(headers)  # sorted already
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = f"GET\n{path}\n{query}\n{lines}\n{names}\n{_NO_BODY}"
        scope = f"{now[:8]}/{self._region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{credentials.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers


@contextlib.contextmanager
def _left_alone(executor: ThreadPoolExecutor) -> Iterator[None]:
    """At the end nobody waits for what is under way: it may be Ctrl-C that ends it."""
    try:
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _parsed(body: bytes) -> ET.Element:
    try:
        return ET.fromstring(body)  # noqa: S314 - expat itself bounds what entities expand to
    except ET.ParseError as error:
        raise ListingError(f"the answer is no list of keys: {error}") from error


def _listed(page: ET.Element) -> list[Listed]:
    decode = unquote_plus if page.findtext("{*}EncodingType") == "url" else str
    space = page.tag.removesuffix("ListBucketResult")
    key, size, modified, etag = (space + name for name in ("Key", "Size", "LastModified", "ETag"))
    return [
        Listed(
            decode(found.findtext(key, "")),
            int(found.findtext(size, "0")),
            round(datetime.fromisoformat(found.findtext(modified, "")).timestamp() * 1000) * 1_000_000,
            found.findtext(etag, ""),
        )
        for found in page.iterfind(space + "Contents")
    ]
