"""What dsagent-init makes of a pod's environment."""

import json
from typing import Any

import pytest

from dsagent.core.errors import UsageError
from dsagent.core.quantities import human_duration, human_size
from dsagent.core.quantities import parse_duration as core_parse_duration
from dsagent.entrypoints.init import quantities
from dsagent.entrypoints.init.datasets import Wanted
from dsagent.entrypoints.init.failure import Failure
from dsagent.entrypoints.init.settings import Settings, load_settings

CANARY = "canary-8d1f"
VERSION = "xxh3:" + "0123456789abcdef" * 2
POD = {"POD_UID": "u", "POD_NAME": "train-0", "POD_NAMESPACE": "research"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": CANARY}
TEMPORARY = {"AWS_SESSION_TOKEN": "temporary"}


def load(datasets: str = "images=/mnt/images", **environ: str) -> Settings:
    return load_settings({**POD, "DSAGENT_DATASETS": datasets, **environ})


def refused(datasets: str = "images=/mnt/images", **environ: str) -> str:
    with pytest.raises(Failure) as caught:
        load(datasets, **environ)
    assert caught.value.code == 2
    assert CANARY not in str(caught.value)
    return str(caught.value)


def one(datasets: str, **environ: str) -> Wanted:
    (wanted,) = load(datasets, **environ).datasets
    return wanted


def in_json(**fields: Any) -> str:
    return json.dumps([{"name": "images", "source": "s3://bucket/images", **fields}])


def test_defaults() -> None:
    found = load()
    assert (found.mode, found.on_failure, found.timeout) == ("cache", "fail", 7200.0)
    assert (found.datasets_dir, found.data_dir, found.data_dir_given) == ("/datasets", "/run/dsagent/data", False)
    assert (found.agent.socket, found.token_file, found.ca_file) == ("/run/dsagent/agent.sock", None, None)
    assert (found.root, found.source_dir, found.pod) == (None, None, ("u", "train-0", "research"))


def test_an_empty_variable_is_none() -> None:
    names = ("AGENT", "TIMEOUT", "MODE", "ON_FAILURE", "DATASETS_DIR", "DATA_DIR", "ROOT", "TOKEN_FILE", "SOURCE_DIR")
    assert load(**{f"DSAGENT_{name}": "" for name in names}) == load()


def test_a_list_of_datasets() -> None:
    found = load(f" imagenet@{VERSION}=s3://bucket/date=1/imagenet, coco = /mnt/nfs/coco,").datasets
    assert [(one.name, one.source, one.version) for one in found] == [
        ("imagenet", "s3://bucket/date=1/imagenet", VERSION),
        ("coco", "/mnt/nfs/coco", None),
    ]


def test_datasets_in_json() -> None:
    options = {"check": "never", "storage": {"region": "eu"}}
    wanted = one(in_json(version=VERSION, options=options))
    assert wanted.document() == {
        "name": "images",
        "source": "s3://bucket/images",
        "version": VERSION,
        "options": options,
        "credentials": {},
        "cluster": False,
    }


@pytest.mark.parametrize(
    ("source", "directory"),
    [("/mnt/a", "/mnt/a"), ("file:///mnt/a", "/mnt/a"), ("s3://bucket/a", None), ("webhdfs://host:9870/a", None)],
)
def test_which_sources_are_directories(source: str, directory: str | None) -> None:
    assert one(f"a={source}").directory == directory


@pytest.mark.parametrize(
    ("datasets", "cause"),
    [
        ("", "is not set"),
        (" , ", "names no dataset"),
        ("[]", "names no dataset"),
        (CANARY, "entry 1 has no '='"),
        (f"a=/a,{CANARY}", "entry 2 has no '='"),
        (f"{CANARY.upper()}=/a", "entry 1 has no valid name"),
        ("=/a", "entry 1 has no valid name"),
        (f"a@{CANARY}=/a", "the version of a is none"),
        ("a@=/a", "the version of a is none"),
        ("a=", "a has no source"),
        (f"a={CANARY}", "neither a URL nor an absolute path"),
        (f"a=file://{CANARY}", "neither a URL nor an absolute path"),
        ("a=/a,b=/b,a=/c", "names a more than once"),
        (f'[{{"name": "{CANARY}"', "no JSON at line 1, column"),
        ('{"name": "a"}', "its JSON is no list"),
        (f'["{CANARY}"]', "entry 1 is no object"),
        (f'[{{"name": "a", "source": "/a", "{CANARY}": 1}}]', "a field that is none of name, source"),
        ('[{"name": 1, "source": "/a"}]', "the name of entry 1 is not a string"),
        ('[{"name": "a"}]', "a has no source"),
        ('[{"source": "/a"}]', "entry 1 has no valid name"),
        ('[{"name": "a", "source": "/a", "options": []}]', "the options of entry 1 is not an object"),
        (in_json(options={"storage": {"region": 1}}), "the storage of entry 1 is no object whose values are strings"),
        (in_json(credentials={"secret": 1}), "the credentials of entry 1 is no object whose values are strings"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_datasets_that_cannot_be_meant(datasets: str, cause: str) -> None:
    said = refused(datasets)
    assert said.startswith("DSAGENT_DATASETS ")
    assert cause in said
    assert "; " in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DSAGENT_TIMEOUT", "soon"),
        ("DSAGENT_TIMEOUT", "-1s"),
        ("DSAGENT_TIMEOUT", "0"),
        ("DSAGENT_TIMEOUT", "9999999d"),
        ("DSAGENT_MODE", "remote"),
        ("DSAGENT_ON_FAILURE", "ignore"),
        ("DSAGENT_DATASETS_DIR", "datasets"),
        ("DSAGENT_DATA_DIR", "./data"),
        ("DSAGENT_SOURCE_DIR", "data"),
        ("DSAGENT_ROOT", "data"),
        ("DSAGENT_TOKEN_FILE", "token"),
        ("DSAGENT_AGENT", "/run/dsagent/agent.sock"),
        ("DSAGENT_AGENT", "unix://run/dsagent/agent.sock"),
        ("DSAGENT_AGENT", f"unix:///{'x' * 107}"),
        ("DSAGENT_AGENT", "http://host:8443"),
        ("DSAGENT_AGENT", "https://host"),
        ("DSAGENT_AGENT", "https://höst:8443"),
        ("DSAGENT_AGENT", "https://fd00::1:8443"),
        ("DSAGENT_AGENT", "https://host:٣"),
        ("DSAGENT_AGENT", "https://host:99999"),
        ("DSAGENT_AGENT", "https://host:8443/path"),
        ("DSAGENT_AGENT", f"https://user:{CANARY}@host:8443"),
        ("POD_UID", ""),
        ("POD_UID", "../x y"),
        ("POD_NAME", ""),
        ("POD_NAMESPACE", ""),
    ],
)
def test_settings_that_cannot_be_meant(variable: str, value: str) -> None:
    said = refused(**{variable: value})
    assert said.startswith(f"{variable} ")
    assert "; " in said


def test_addresses() -> None:
    host = load(DSAGENT_AGENT="https://node-1:8443/").agent
    assert (host.host, host.port, host.socket) == ("node-1", 8443, "")
    assert load(DSAGENT_AGENT="https://[fd00::1]:8443").agent.host == "fd00::1"


def test_local_mode_needs_no_identity() -> None:
    assert load(DSAGENT_MODE="local", POD_UID="", POD_NAME="", POD_NAMESPACE="").mode == "local"


def test_s3_gets_what_the_environment_says() -> None:
    environ = {**KEYS, "AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "us-1"}
    wanted = one("a=s3://bucket/a", **environ, **TEMPORARY)
    assert wanted.options == {"storage": {"endpoint_url": "http://minio:9000", "region": "eu-1"}}
    keys = {"access_key_id": "AKIA", "secret_access_key": CANARY}
    assert wanted.credentials == {**keys, "session_token": "temporary"}
    other = one("a=s3://bucket/a", **environ, AWS_ENDPOINT_URL_S3="http://s3:9000")
    assert other.options["storage"]["endpoint_url"] == "http://s3:9000"
    assert other.credentials == keys


def test_other_storage_gets_none_of_it() -> None:
    environ = {**KEYS, "AWS_REGION": "eu-1", "HADOOP_USER_NAME": "alice"}
    for source in ("/mnt/a", "gs://bucket/a", "https://host/a"):
        wanted = one(f"a={source}", **environ)
        assert (wanted.options, wanted.credentials) == ({}, {})


def test_a_directory_that_is_packed_to_s3_needs_keys() -> None:
    text = json.dumps([{"name": "a", "source": "/mnt/a", "options": {"pack_to": "s3://bucket/store"}}])
    wanted = one(text, **KEYS, AWS_REGION="eu-1")
    assert wanted.credentials["secret_access_key"] == CANARY
    assert wanted.options == {"pack_to": "s3://bucket/store", "storage": {"region": "eu-1"}}


def test_what_a_dataset_says_itself_comes_first() -> None:
    own = {"storage": {"region": "own"}}
    wanted = one(in_json(options=own, credentials={"access_key_id": "mine"}), **KEYS, **TEMPORARY, AWS_REGION="eu-1")
    assert (wanted.options, wanted.credentials) == (own, {"access_key_id": "mine"})


@pytest.mark.parametrize("given", KEYS)
def test_half_a_key_is_none(given: str) -> None:
    (missing,) = set(KEYS) - {given}
    assert f"{missing} is not set, but {given} is" in refused("a=s3://bucket/a", **{given: CANARY})
    assert one("a=/mnt/a", **{given: CANARY}).credentials == {}


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
def test_hdfs_gets_the_user(scheme: str) -> None:
    assert one(f"a={scheme}://host:1/a", HADOOP_USER_NAME="alice").options == {"storage": {"user": "alice"}}
    assert one(f"a={scheme}://host:1/a").options == {}


@pytest.mark.parametrize("text", ["90", "90s", "15m", "2h", "7d", "1.5h", " 2h ", "", "h", "1w", "1.5", "٣", "9" * 40])
def test_durations_are_those_of_dsctl(text: str) -> None:
    try:
        expected: float | None = core_parse_duration(text)
    except UsageError:
        expected = None
    assert quantities.parse_duration(text) == expected


@pytest.mark.parametrize("power", range(19))
def test_quantities_are_written_as_dsctl_writes_them(power: int) -> None:
    for factor in (1, 4.94, 9.949, 9.951, 9.994, 9.996):
        value = factor * 10**power
        assert quantities.human_size(value) == human_size(value)
        assert quantities.human_duration(value) == human_duration(value)
    assert quantities.human_size(0) == human_size(0)
