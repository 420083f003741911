"""Errors that do not repeat credentials."""

import threading

from dsagent.agent.secrets import hide, remember, remembered, remembering, secrets_of, trace, without
from dsagent.core.errors import NotPermitted
from dsagent.core.ports import Location

OPTIONS = (("access_key_id", "KEYKEY"), ("beneath", "/data"), ("region", "nowhere"), ("token", "abc"))


def test_what_opens_a_place_is_secret_but_where_and_how_it_lies() -> None:
    assert secrets_of(Location("s3://x", OPTIONS), None, Location("s3://y", (("secret", "KEYKEYS"),))) == [
        "KEYKEYS",
        "KEYKEY",
    ]


def test_an_error_keeps_its_class_and_loses_its_secrets() -> None:
    error = NotPermitted("read", "s3://x", "InvalidAccessKeyId KEYKEYS and KEYKEY", "not KEYKEY", [b"path"])
    hidden = without(error, ["KEYKEYS", "KEYKEY"])
    assert isinstance(hidden, NotPermitted)
    assert (hidden.cause, hidden.hint, hidden.paths) == ("InvalidAccessKeyId *** and ***", "not ***", (b"path",))
    assert without(error, ["other"]) is error


def test_what_a_foreign_error_says_of_a_secret_is_hidden_in_its_trace() -> None:
    def open_with(key: str) -> None:
        raise ValueError(f"{key} is not valid")

    try:
        open_with("KEYKEY")
    except ValueError as error:
        text = trace(error, ["KEYKEY"])
    assert "*** is not valid" in text
    assert "open_with" in text
    assert hide(text, []) == text


def test_secrets_are_remembered_for_as_long_as_a_request_lasts() -> None:
    with remembering():
        remember(["KEYKEY", "abc"])
        remember(["KEYKEYS"])
        assert remembered() == ["KEYKEYS", "KEYKEY"]
        other: list[list[str]] = []
        thread = threading.Thread(target=lambda: other.append(remembered()))
        thread.start()
        thread.join()
        assert other == [[]], "another request's"
    assert remembered() == []
