"""What S3 has and directories have not."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsagent.adapters.objects import ObjectSource, ObjectStore
from dsagent.core.entries import DIRECTORY, FILE
from dsagent.core.errors import BadStore, NotPermitted, SourceError, UsageError
from dsagent.core.ports import Location
from tests import servers
from tests.unit.contract.places import BucketPlace, s3_options
from tools.servers import free_port

_ROW = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"}


@pytest.fixture
def bucket() -> BucketPlace:
    return BucketPlace(servers.moto())


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in _ROW:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def put(place: BucketPlace, key: str, body: bytes = b"x") -> None:
    place.client.put_object(Bucket=place.bucket, Key=key, Body=body)


def test_every_key_that_cannot_be_a_path_is_named(bucket: BucketPlace) -> None:
    good = ["fine", "also/fine", "%2e%2e/fine", "a+b c", "..."]
    bad = ["a//b", "./c", "d/../e", "f/.", "/g", "h/", "tab\tbed", "n" * 256, "both", "also"]
    for key in [*good, *bad, "both/file"]:
        put(bucket, f"some/prefix/{key}")
    with pytest.raises(SourceError) as raised:
        list(bucket.source().scan([]))
    assert sorted(raised.value.paths) == sorted(key.encode() for key in bad)


def test_an_empty_object_with_a_slash_at_its_end_is_a_folder(bucket: BucketPlace) -> None:
    for key in ("", "empty/", "full/", "full/file", "deep/in/"):
        put(bucket, f"some/prefix/{key}", b"")
    found = [(stamp.path, stamp.kind) for stamp in bucket.source().scan()]
    assert found == [
        (b"deep", DIRECTORY),
        (b"deep/in", DIRECTORY),
        (b"empty", DIRECTORY),
        (b"full", DIRECTORY),
        (b"full/file", FILE),
    ]


def test_a_folder_that_is_only_marked_is_an_empty_tree(bucket: BucketPlace) -> None:
    put(bucket, "some/prefix/", b"")
    assert list(bucket.source().scan()) == []


def test_a_prefix_is_a_folder_and_no_beginning_of_a_name(bucket: BucketPlace) -> None:
    put(bucket, "some/prefix/file")
    put(bucket, "some/prefix-2/file")
    put(bucket, "some/prefix.txt")
    assert [stamp.path for stamp in bucket.source().scan()] == [b"file"]


def test_the_whole_bucket_is_a_source(bucket: BucketPlace) -> None:
    put(bucket, "a/file")
    source = ObjectSource(Location(f"s3://{bucket.bucket}/", bucket.location.options))
    assert source.location.url == f"s3://{bucket.bucket}"
    assert [stamp.path for stamp in source.scan()] == [b"a", b"a/file"]


@pytest.mark.needs("go")
def test_more_keys_than_fit_on_a_page_are_listed() -> None:
    bucket = BucketPlace(servers.versitygw())
    store = ObjectStore(bucket.location)  # ten times as fast as boto3
    names = [f"{number:04}" for number in range(1001)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda name: store.create(name, b""), names))
    assert [stamp.path.decode() for stamp in bucket.source().scan()] == names


def test_stamps_carry_etag_and_time(bucket: BucketPlace) -> None:
    put(bucket, "some/prefix/file", b"content")
    found = bucket.client.head_object(Bucket=bucket.bucket, Key="some/prefix/file")
    (stamp,) = bucket.source().scan()
    assert stamp.token.decode() == found["ETag"]
    assert stamp.mtime_ns // 10**9 == int(found["LastModified"].timestamp())


def test_a_bucket_that_is_not_there_is_said(bucket: BucketPlace) -> None:
    location = Location("s3://no-such-bucket-anywhere/data", bucket.location.options)
    with pytest.raises(SourceError, match="NoSuchBucket"):
        list(ObjectSource(location).scan())
    with pytest.raises(BadStore, match="NoSuchBucket"):
        ObjectStore(location).create("key", b"x")


@pytest.mark.needs("go")
def test_a_wrong_key_is_not_permitted() -> None:
    place = BucketPlace(servers.versitygw())
    options = dict(place.location.options) | {"aws_secret_access_key": "wrong"}
    location = Location(place.location.url, tuple(options.items()))
    with pytest.raises(NotPermitted):
        list(ObjectSource(location).scan())
    store = ObjectStore(location)
    for call in (lambda: store.find("key"), lambda: store.create("key", b"x"), lambda: store.read("key", 0, 1)):
        with pytest.raises(NotPermitted):
            call()


def test_without_credentials_the_hint_says_where_they_are_looked_for() -> None:
    with pytest.raises(NotPermitted, match=r"AWS_PROFILE.*skip_signature"):
        ObjectSource(Location("s3://bucket/data"))


@pytest.mark.parametrize("url", ["s3://", "s3:///data", "s3://bucket/a//b", "s3://bucket/../b"])
def test_what_is_no_s3_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        ObjectSource(Location(url))


def test_an_unknown_option_is_named(bucket: BucketPlace) -> None:
    with pytest.raises(UsageError, match="colour"):
        ObjectSource(Location(bucket.location.url, (*bucket.location.options, ("colour", "red"))))


def test_a_public_bucket_needs_no_key(bucket: BucketPlace) -> None:
    put(bucket, "some/prefix/file", b"for all")
    bucket.client.put_object_acl(Bucket=bucket.bucket, Key="some/prefix/file", ACL="public-read")
    endpoint = dict(bucket.location.options)["aws_endpoint_url"]
    options = (("endpoint", endpoint), ("skip_signature", "true"))
    source = ObjectSource(Location(bucket.location.url, options))
    (stamp,) = source.scan()
    assert b"".join(source.chunks(stamp)) == b"for all"


@pytest.mark.needs("go")
@pytest.mark.parametrize("how", ["environment", "profile", "default profile"])
def test_settings_are_found_where_aws_keeps_them(how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = servers.versitygw()
    place = BucketPlace(settings)
    place.write(b"file", b"content")
    name = "default" if how == "default profile" else "training"
    if how == "environment":
        for variable in _ROW:
            monkeypatch.setenv(variable, settings[variable])
    else:
        key, secret = settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"]
        (tmp_path / "credentials").write_text(
            f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
        )
        section = "default" if name == "default" else f"profile {name}"
        (tmp_path / "config").write_text(
            f"[{section}]\nregion = us-east-1\nendpoint_url = {settings['AWS_ENDPOINT_URL']}\n"
        )
        if how == "profile":
            monkeypatch.setenv("AWS_PROFILE", name)
    source = ObjectSource(Location(place.location.url))
    (stamp,) = source.scan()
    assert list(source.chunks(stamp)) == [b"content"]


def test_an_unknown_profile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UsageError, match="nobody"):
        ObjectSource(Location("s3://bucket/data"))


def test_credentials_stay_out_of_what_is_printed(bucket: BucketPlace) -> None:
    source = bucket.source()
    assert "anything" not in repr(source.location)
    assert "anything" not in source.location.url


def test_without_obstore_the_extra_is_named() -> None:
    code = "import sys; sys.modules['obstore.exceptions'] = None; import dsagent.adapters.objects"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "UsageError" in done.stderr
    assert "pip install 'dsagent[s3]'" in done.stderr


def test_an_endpoint_nobody_listens_on_is_an_error(monkeypatch: pytest.MonkeyPatch, bucket: BucketPlace) -> None:
    monkeypatch.setattr("dsagent.adapters.s3_listing.ATTEMPTS", 1)
    options = dict(s3_options(servers.moto())) | {"aws_endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(SourceError, match="refused"):
        list(ObjectSource(Location(bucket.location.url, tuple(options.items()))).scan())
