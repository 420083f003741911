"""Where settings come from."""

from pathlib import Path

import pytest

from dsagent.core.errors import UsageError
from dsagent.service.settings import SYSTEM_ROOT, Flags, default_root, load_settings

ENVIRONMENT = {"DSAGENT_ROOT": "/env", "DSAGENT_CAPACITY": "5G", "DSAGENT_KEEP_FREE": "1GiB"}


def test_a_flag_comes_before_a_variable() -> None:
    found = load_settings(Flags("/flag", "7G", 8, 3), ENVIRONMENT)
    assert (found.root, found.capacity, found.keep_free, found.workers) == (Path("/flag"), 7 * 10**9, 8, 3)
    assert dict(found.origins) == {
        "root": "--root",
        "capacity": "--capacity",
        "keep_free": "--keep-free",
        "workers": "--workers",
    }


def test_a_variable_comes_before_the_default() -> None:
    found = load_settings(Flags(), ENVIRONMENT)
    assert (found.root, found.capacity, found.keep_free) == (Path("/env"), 5 * 10**9, 1 << 30)
    assert found.lines()[:2] == ["root = /env (DSAGENT_ROOT)", "capacity = 5000000000 (DSAGENT_CAPACITY)"]


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    found = load_settings(Flags(root="relative"), {"DSAGENT_CAPACITY": ""})
    assert (found.root, found.capacity, found.keep_free, found.workers) == (Path("/relative"), None, None, None)
    assert set(found.origins.values()) == {"--root", "default"}


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        (Flags(capacity="many"), {}, "--capacity 'many'"),
        (Flags(), {"DSAGENT_KEEP_FREE": "10%"}, "DSAGENT_KEEP_FREE '10%'"),
        (Flags(root=""), {}, "--root"),
        (Flags(workers=0), {}, "--workers"),
    ],
)
def test_an_error_names_the_origin(flags: Flags, environment: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(flags, environment)
    assert caught.value.subject == named


def test_the_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for writable, environment, expected in (
        (True, {"XDG_CACHE_HOME": "/cache"}, SYSTEM_ROOT),
        (False, {"XDG_CACHE_HOME": "/cache"}, "/cache/dsagent"),
        (False, {"XDG_CACHE_HOME": "relative"}, f"{tmp_path}/.cache/dsagent"),
        (False, {}, f"{tmp_path}/.cache/dsagent"),
    ):
        monkeypatch.setattr("os.access", lambda *_, answer=writable: answer)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_root(environment) == expected
