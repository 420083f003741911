"""What an agent is told of a source, and what of it is a secret."""

import os
from pathlib import Path

import pytest

from dsagent.adapters.agent_places import Place, place
from dsagent.core.errors import NotPermitted, UsageError
from dsagent.core.ports import Location

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
SENT = {"access_key_id": "id", "secret_access_key": "secret", "session_token": "token"}
HOME = {"AWS_ENDPOINT_URL": "http://gateway", "AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "no-1"}
STORAGE = {"endpoint_url": "http://gateway", "region": "eu-1"}
BUCKET = "s3://bucket/images"


def test_paths_are_whole_and_need_no_keys() -> None:
    assert place(Location("images"), KEYS) == Place(os.path.abspath("images"), {}, {})
    assert place(Location("/a/../images/"), KEYS | HOME) == Place("/images", {}, {})
    assert place(Location("file:///images"), KEYS).source == "file:///images"


def test_what_is_no_secret_for_sure_is_one() -> None:
    options = (("host", "namenode"), ("password", "12345"), ("unheard", "of"))
    assert place(Location("webhdfs://namenode/images", options), KEYS) == Place(
        "webhdfs://namenode/images", {"host": "namenode"}, {"password": "12345", "unheard": "of"}
    )


def test_keys_of_the_environment_are_credentials() -> None:
    assert place(Location(BUCKET), KEYS | HOME) == Place(BUCKET, STORAGE, SENT)
    assert place(Location(BUCKET), HOME) == Place(BUCKET, STORAGE, {})  # the agent has its own
    assert (
        place(Location(BUCKET), KEYS | HOME | {"AWS_ENDPOINT_URL_S3": "http://s3"}).storage["endpoint_url"]
        == "http://s3"
    )


def test_options_come_before_the_environment() -> None:
    options = (("aws_access_key_id", "mine"), ("AWS_REGION", "us-1"), ("secret_access_key", "my secret"))
    mine = {"access_key_id": "mine", "secret_access_key": "my secret"}
    assert place(Location(BUCKET, options), KEYS | HOME) == Place(BUCKET, STORAGE | {"region": "us-1"}, mine)
    public = place(Location(BUCKET, (("skip_signature", "true"),)), KEYS | HOME)
    assert public == Place(BUCKET, STORAGE | {"skip_signature": "true"}, {})
    elsewhere = place(Location(BUCKET, (("endpoint", "http://other"),)), HOME)
    assert elsewhere.storage == {"region": "eu-1", "endpoint": "http://other"}


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, *HOME, "AWS_PROFILE", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = id\naws_secret_access_key = secret\n")
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-1\nendpoint_url = http://gateway\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.usefixtures("profile")
def test_a_profile_is_the_users_and_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access_key_id": "id", "secret_access_key": "secret"}
    assert place(Location(BUCKET, (("profile", "lab"),)), os.environ) == Place(BUCKET, STORAGE, keys)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert place(Location(BUCKET), os.environ) == Place(BUCKET, STORAGE, keys)
    with pytest.raises((UsageError, NotPermitted)):
        place(Location(BUCKET, (("profile", "none"),)), os.environ)
