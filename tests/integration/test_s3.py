"""dsctl from and to S3: a real gateway where Go is there, and moto's server."""

import random
import signal
import socket
from pathlib import Path

import pytest

from tests import servers
from tests.support import remote, trees
from tests.support.agents import agent
from tests.support.command import HANG_SECONDS, Dsctl
from tests.unit.contract.places import BucketPlace

LARGE = 9 << 20  # packed, it goes up and comes down in parts


@pytest.fixture(params=[pytest.param("versitygw", marks=pytest.mark.needs("go")), "moto"])
def server(request: pytest.FixtureRequest) -> dict[str, str]:
    return servers.versitygw() if request.param == "versitygw" else servers.moto()


@pytest.fixture
def bucket(server: dict[str, str]) -> BucketPlace:
    return BucketPlace(server)


@pytest.fixture
def dsctl(server: dict[str, str], tmp_path: Path) -> Dsctl:
    return Dsctl(tmp_path / "root", server)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    trees.make_files(root, 60, directories=4)
    (root / "empty folder").mkdir()
    (root / "d000" / "empty file").touch()
    (root / "d000.txt").write_bytes(b"before d000/ by bytes, after it by path")
    return root


def test_a_store_on_s3_is_packed_cached_verified_updated_and_pruned(
    dsctl: Dsctl, tree: Path, bucket: BucketPlace
) -> None:
    (tree / "large").write_bytes(random.Random(1).randbytes(LARGE))
    store = f"s3://{bucket.bucket}/stores/images"
    remote.assert_a_store_is_packed_cached_verified_updated_and_pruned(dsctl, tree, store)


def test_unpacked_objects_are_cached_and_updated_by_what_changed(
    dsctl: Dsctl, tree: Path, bucket: BucketPlace, tmp_path: Path
) -> None:
    remote.assert_unpacked_files_are_cached_and_updated_by_what_changed(dsctl, tree, bucket, tmp_path / "store")
    assert dsctl.ok("diff", bucket.location.url, "images")["changed"] == []


def test_objects_are_packed_into_a_store_beside_them_while_they_are_cached(
    dsctl: Dsctl, tree: Path, bucket: BucketPlace
) -> None:
    remote.upload(bucket, tree)
    store = f"s3://{bucket.bucket}/packed"
    cached = dsctl.ok("cache", bucket.location.url, "--name", "images", "--pack-to", store)
    assert [row["version"] for row in dsctl.ok("ls", store)] == [cached["version"]]
    other = Dsctl(dsctl.root.with_name("other root"), dsctl.environment)
    again = other.ok("cache", store)
    assert again["version"] == cached["version"]
    expected = trees.without_times(trees.look(tree))
    trees.assert_same(trees.without_times(trees.look(Path(again["path"]))), expected)


def test_options_on_the_command_line_are_enough(dsctl: Dsctl, tree: Path, bucket: BucketPlace) -> None:
    remote.upload(bucket, tree)
    unset = {name: "" for name in dsctl.environment if name.startswith("AWS_")}
    bare = Dsctl(dsctl.root, unset | {"AWS_EC2_METADATA_DISABLED": "true"})
    options = [f"--storage-option={name}={value}" for name, value in bucket.location.options]
    assert bare.ok("cache", bucket.location.url, "--name", "images", *options)["outcome"] == "fetched"


def test_what_is_not_there_is_a_missing_source(dsctl: Dsctl, bucket: BucketPlace) -> None:
    assert "no object" in dsctl.fails(3, "cache", f"s3://{bucket.bucket}/nothing")["detail"]
    assert "NoSuchBucket" in dsctl.fails(3, "cache", "s3://no-such-bucket-anywhere/data")["detail"]
    dsctl.assert_nothing_published()


def test_keys_that_cannot_be_kept_are_all_named(tmp_path: Path) -> None:
    # A gateway before a directory cannot hold such keys.
    bucket, dsctl = BucketPlace(servers.moto()), Dsctl(tmp_path / "root", servers.moto())
    bad = [b"both", b"folder with content/", b"a//b", b"../c", b"./d"]
    for key in [*bad, b"both/file", b"fine"]:
        bucket.write(key, b"content")
    problem = dsctl.fails(3, "cache", bucket.location.url, "--name", "odd")
    assert sorted(problem["paths"]) == sorted(key.decode() for key in bad)
    dsctl.assert_nothing_published()


@pytest.mark.needs("go")
def test_a_wrong_key_is_not_permitted(tmp_path: Path) -> None:
    settings = servers.versitygw()
    place = BucketPlace(settings)
    dsctl = Dsctl(tmp_path / "root", settings | {"AWS_SECRET_ACCESS_KEY": "wrong"})
    dsctl.fails(11, "cache", place.location.url)
    dsctl.fails(11, "pack", tmp_path, place.location.url, "--name", "images")


def test_a_store_that_loses_or_alters_a_bundle_is_bad(dsctl: Dsctl, tree: Path, bucket: BucketPlace) -> None:
    dsctl.ok("pack", tree, bucket.location.url, "--name", "images")
    listed = bucket.client.list_objects_v2(Bucket=bucket.bucket, Prefix="some/prefix/bundles/")
    (bundle,) = (found["Key"] for found in listed["Contents"])
    body = bytearray(bucket.client.get_object(Bucket=bucket.bucket, Key=bundle)["Body"].read())
    body[len(body) // 2] ^= 1
    bucket.client.put_object(Bucket=bucket.bucket, Key=bundle, Body=bytes(body))
    dsctl.fails(5, "cache", bucket.location.url)
    bucket.client.delete_object(Bucket=bucket.bucket, Key=bundle)
    dsctl.fails(10, "cache", bucket.location.url)
    dsctl.assert_nothing_published()


def test_ctrl_c_ends_the_wait_for_a_store_that_never_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = servers.moto() | {"AWS_ENDPOINT_URL": endpoint}
        waiting = Dsctl(tmp_path / "root", settings).start("cache", "s3://bucket/data", "-o", "json")
        silent.settimeout(HANG_SECONDS)
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)  # the request is under way
            waiting.send_signal(signal.SIGINT)
            out, _ = waiting.communicate(timeout=30)  # less than a request may take
        assert (waiting.returncode, out) == (130, b"")


def test_through_an_agent_with_the_users_credentials_only(tree: Path, tmp_path: Path) -> None:
    server = servers.moto()
    bucket = BucketPlace(server)
    remote.upload(bucket, tree)
    mine, nobodys = Dsctl(tmp_path / "root", server), Dsctl(tmp_path / "root", {"AWS_EC2_METADATA_DISABLED": "true"})
    with agent(tmp_path / "root", environment={"AWS_EC2_METADATA_DISABLED": "true"}) as running:
        url = f"s3://{bucket.bucket}/some/prefix"
        cached = mine.ok("cache", url, "--name", "images", "--pack-to", f"s3://{bucket.bucket}/stores/images")
        assert (cached["outcome"], cached["files"]) == ("fetched", 62)
        assert mine.ok("cache", url, "--name", "images")["outcome"] == "hit"
        assert mine.ok("diff", url, "images")["changed"] == []
        nobodys.fails(11, "cache", url, "--name", "images")
        damaged = next(path for path in Path(cached["path"]).rglob("f0*") if path.stat().st_size)
        damaged.chmod(0o644)
        damaged.write_bytes(b"x" * damaged.stat().st_size)
        assert mine.ok("verify", "images", "--repair")["repaired"] == 1
        assert server["AWS_SECRET_ACCESS_KEY"] not in running.log.read_text()
