"""Where contract tests put their files: one class for each kind of storage."""

import os
import uuid
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import boto3
import fsspec
from botocore.config import Config

from dsagent.core.ports import Location, Source
from dsagent.wiring import Wiring
from tests.fakes.source import MemorySource


class Place(Protocol):
    """A tree of files that a test writes, and the source that reads it.

    `notices_rewrites`: a file that was written again has another stamp, whatever its size.
    """

    notices_rewrites: bool

    def source(self) -> Source: ...

    def write(self, path: bytes, data: bytes) -> None: ...

    def make_directory(self, path: bytes) -> None: ...

    def remove(self, path: bytes) -> None: ...


class MemoryPlace:
    notices_rewrites = True

    def __init__(self) -> None:
        self._source = MemorySource()
        self.write = self._source.write
        self.make_directory = self._source.make_directory
        self.remove = self._source.remove

    def source(self) -> Source:
        return self._source


class DirectoryPlace:
    notices_rewrites = True

    def __init__(self, root: Path, options: tuple[tuple[str, str], ...] = ()) -> None:
        self._root = os.fsencode(root)
        self._options = options

    def source(self) -> Source:
        return Wiring().source(Location(os.fsdecode(self._root), self._options))

    def write(self, path: bytes, data: bytes) -> None:
        self.make_directory(path.rpartition(b"/")[0])
        Path(os.fsdecode(self._root + b"/" + path)).write_bytes(data)

    def make_directory(self, path: bytes) -> None:
        os.makedirs(self._root + b"/" + path, exist_ok=True)

    def remove(self, path: bytes) -> None:
        os.unlink(self._root + b"/" + path)


class BucketPlace:
    """A new bucket; `environment` are the AWS_* variables of the server."""

    notices_rewrites = True

    def __init__(self, environment: dict[str, str]) -> None:
        self.bucket = f"bucket-{uuid.uuid4().hex}"
        self.client = s3_client(**environment)
        self.client.create_bucket(Bucket=self.bucket)
        self.location = Location(f"s3://{self.bucket}/some/prefix", s3_options(environment))

    def source(self) -> Source:
        return Wiring().source(self.location)

    def write(self, path: bytes, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"some/prefix/{path.decode()}", Body=data)

    def make_directory(self, path: bytes) -> None:
        self.write(path + b"/", b"")

    def remove(self, path: bytes) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=f"some/prefix/{path.decode()}")


class FilesystemPlace:
    """A new folder below an fsspec URL."""

    def __init__(self, url: str, notices_rewrites: bool) -> None:
        self.notices_rewrites = notices_rewrites
        self.location = Location(f"{url}/{uuid.uuid4().hex}")
        self._files, self._root = fsspec.core.url_to_fs(self.location.url)

    def source(self) -> Source:
        return Wiring().source(self.location)

    def write(self, path: bytes, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{path.decode()}", data)

    def make_directory(self, path: bytes) -> None:
        self._files.makedirs(f"{self._root}/{path.decode()}".rstrip("/"), exist_ok=True)

    def remove(self, path: bytes) -> None:
        self._files.rm_file(f"{self._root}/{path.decode()}")


def s3_options(environment: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """What `--storage-option` would give."""
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    return tuple((name.lower(), environment[name]) for name in names)


@cache
def s3_client(**environment: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}),
    )
