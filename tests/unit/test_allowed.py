"""Which sources may be named: the allow-list, and URLs with secrets in them."""

import pytest
from pydantic import SecretStr

from dsagent.core.errors import NotPermitted, UsageError
from dsagent.core.ports import Location
from dsagent.entrypoints.serve.identity import ADMINISTRATOR, Identity
from dsagent.entrypoints.serve.sources import allowed, checked_storage, opened_by

POD = Identity("pod", "team", "uid")
BOTH = (ADMINISTRATOR, POD)
LIST = allowed(["s3://data/team", "/mnt/data/", "hdfs://namenode:8020"])


@pytest.mark.parametrize(
    "url", ["s3://data/team", "s3://data/team/imgs", "s3://data/team/", "hdfs://namenode:8020/a/b"]
)
@pytest.mark.parametrize("who", BOTH)
def test_urls_below_a_prefix_are_allowed(url: str, who: Identity) -> None:
    assert LIST.place(url, (("region", "x"),), who) == Location(url, (("region", "x"),))


@pytest.mark.parametrize(
    "url",
    [
        *("s3://data/teams", "s3://data", "s3://data/", "s3://data/team/../other", "s3://data/team/./x"),
        *(
            "s3://data/team/%2e%2e/other",
            "s3://data/team/a%2Fb",
            "s3://data/team/..",
            "S3://data/team",
            "s3://datateam",
        ),
        *(
            "s3://data/team\\x",
            "s3://data/team/a\\..\\b",
            "gs://data/team",
            "hdfs://namenode:80200/a",
            "hdfs://other/a",
        ),
        *("s3://data/team/x::file:///etc", "simplecache::s3://data/team", "s3://data/team\n"),
        *("/mnt/database", "/mnt/data/../secret", "/mnt", "/etc/passwd", "file:///etc", "/mnt/data/x/..", "/mnt//data"),
        *("local:///etc", "file:/etc"),
    ],
)
@pytest.mark.parametrize("who", BOTH)
def test_all_else_is_refused(url: str, who: Identity) -> None:
    with pytest.raises((NotPermitted, UsageError)):
        LIST.place(url, (), who)


@pytest.mark.parametrize("url", ["/mnt/data", "/mnt/data/x", "file:///mnt/data/x"])
def test_a_path_below_a_folder_must_lie_beneath_it_when_it_is_opened(url: str) -> None:
    assert LIST.place(url, (), POD) == Location(url.removeprefix("file://"), (("beneath", "/mnt/data"),))
    assert allowed(["/"]).place(url, (), POD).options == (("beneath", "/"),)


def test_without_a_list_pods_name_remote_places_and_administrators_any() -> None:
    none = allowed([])
    assert none.place("/data", (), ADMINISTRATOR) == Location("/data")
    assert none.place("s3://data/x", (), POD) == Location("s3://data/x")
    assert none.place("memory://x", (), ADMINISTRATOR) == Location("memory://x")
    for url in (
        "/data",
        "file:///data",
        "local:///etc",
        "memory://x",
        "github://x",
        "dir::file:///etc",
        "data://x",
        "http://169.254.169.254/x",
    ):
        with pytest.raises(NotPermitted):
            none.place(url, (), POD)
    with pytest.raises(UsageError, match="whole path"):
        none.place("data", (), ADMINISTRATOR)


def test_a_list_of_urls_allows_no_folder_and_one_of_folders_no_url() -> None:
    for who in BOTH:
        with pytest.raises(NotPermitted):
            allowed(["s3://data"]).place("/data", (), who)
        with pytest.raises(NotPermitted):
            allowed(["/data"]).place("s3://data", (), who)


def test_a_relative_folder_is_no_setting() -> None:
    with pytest.raises(UsageError, match="whole path"):
        allowed(["data"])


@pytest.mark.parametrize(
    "url",
    [
        *("https://SESAME@host/x", "https://user:SESAME@host/x", "s3://SESAME@bucket/x", "sftp://me:SESAME@host/x"),
        *("s3://bucket/x?X-Amz-Signature=SESAME", "https://host/x?token=SESAME", "https://host/x#SESAME"),
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    for refused in (lambda: allowed([]).place(url, (), ADMINISTRATOR), lambda: checked_storage({"endpoint_url": url})):
        with pytest.raises(UsageError) as caught:
            refused()
        assert "SESAME" not in repr(caught.value)
        assert "SESAME" not in str(caught.value)
        assert "credentials" in caught.value.hint
    assert allowed([]).place("sftp://me@host/x", (), POD).url == "sftp://me@host/x"


def test_nobody_says_what_a_path_must_lie_beneath() -> None:
    with pytest.raises(UsageError, match="beneath"):
        checked_storage({"beneath": "/"})
    for who in BOTH:
        with pytest.raises(UsageError, match="beneath"):
            opened_by((), {"beneath": SecretStr("/")}, who)


def test_pods_send_credentials_that_name_no_file_of_the_node() -> None:
    given = {"access_key_id": SecretStr("a"), "secret_access_key": SecretStr("b")}
    assert opened_by((), given, POD) == (("access_key_id", "a"), ("secret_access_key", "b"))
    with pytest.raises(UsageError, match="key_filename"):
        opened_by((), {"key_filename": SecretStr("/root/.ssh/id_rsa")}, POD)
    assert opened_by((), {"key_filename": SecretStr("/x")}, ADMINISTRATOR) == (("key_filename", "/x"),)


def test_the_nodes_own_credentials_go_where_the_node_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    elsewhere = (("endpoint_url", "http://mine:9000"),)
    with pytest.raises(NotPermitted, match="mine"):
        opened_by(elsewhere, {}, POD)
    with pytest.raises(NotPermitted, match="profile"):
        opened_by((("profile", "admin"),), {}, POD)
    assert opened_by(elsewhere, {}, ADMINISTRATOR) == ()
    assert opened_by((*elsewhere, ("skip_signature", "true")), {}, POD) == ()
    assert opened_by((("endpoint_url", "http://store:9000"),), {}, POD) == ()
    assert opened_by(elsewhere, {"access_key_id": SecretStr("a")}, POD) == (("access_key_id", "a"),)
