"""Every verb of dsctl: its options before and after it, and what it writes."""

import base64
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsagent import __version__
from dsagent.entrypoints.dsctl.app import GROUPS, MODULES, make_command
from dsagent.entrypoints.dsctl.arguments import hoist
from dsagent.entrypoints.dsctl.parser import Command, make_reader, parse
from tests.support.agents import agent
from tests.support.command import Done, Dsctl, run_forked

TASK = "0f3c-task"
CACHED = {"dataset", "version", "files", "bytes", "last_used", "leases", "path"}
LEASE = {"owner", "dataset", "version", "expires"}


@dataclass(frozen=True)
class Verb:
    """One call of a verb: its words (SOURCE, STORE stand for paths), what must run before, and its JSON fields."""

    words: str
    fields: set[str]
    before: Sequence[str] = ()
    listing: bool = False
    on_root: bool = True
    of_agent: bool = False
    items: dict[str, set[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.words


VERBS = [
    Verb(
        "pack SOURCE NEW --name tiny --files-per-bundle 2 --bundle-bytes 1MiB --level 3 --workers 1",
        {"dataset", "version", "files", "bytes", "bundles", "new_bundles", "stored_bytes", "seconds"},
        on_root=False,
    ),
    Verb(
        "cache STORE",
        {
            *("dataset", "version", "path", "outcome", "files", "bytes", "fetched_bytes", "reused_files", "evicted"),
            "seconds",
        },
    ),
    Verb("cache SOURCE --name other --dry-run", {"dataset", "outcome", "files", "bytes", "evicted"}),
    Verb("cache STORE --lease me --lease-for 2h --check content", {"dataset", "version", "path", "outcome", "lease"}),
    Verb("ls", CACHED, ["lease add tiny --owner me"], listing=True, items={"leases": {"owner", "expires"}}),
    Verb("ls STORE", CACHED, listing=True, on_root=False),
    Verb("path tiny", CACHED),
    Verb("df", {"capacity", "used", "reserved", "free", "inodes"}),
    Verb("verify tiny", {"dataset", "version", "files", "bad"}),
    Verb(
        "evict gone",
        {"evicted", "freed_bytes"},
        ["cache SOURCE --name gone"],
        items={"evicted": {"dataset", "version", "bytes"}},
    ),
    Verb("evict --need 1 --dry-run", {"evicted", "freed_bytes"}),
    Verb("lease add tiny --owner me --for 90s", LEASE),
    Verb("lease renew tiny --owner me --for 7d", LEASE, ["lease add tiny --owner me"]),
    Verb("lease release tiny --owner you", LEASE, ["lease add tiny --owner you"]),
    Verb("lease ls", LEASE, ["lease add tiny --owner me"], listing=True),
    Verb("diff SOURCE tiny", {"added", "removed", "changed"}),
    Verb("store check STORE", {"dataset", "bad"}, on_root=False),
    Verb("store forget STORE --keep-last 1 --older-than 30d --dry-run", {"dataset", "forgotten"}, on_root=False),
    Verb("store prune STORE --dry-run", {"dataset", "deleted", "freed_bytes"}, on_root=False),
    Verb("tasks", {"id", "owner", "state", "datasets"}, listing=True, of_agent=True),
    Verb("watch TASK", {"id", "owner", "state", "datasets"}, of_agent=True),
    Verb("top", {"disk", "limits", "tasks", "leases"}, of_agent=True),
    Verb("doctor", {"checks"}, items={"checks": {"name", "status", "detail", "advice"}}),
]


@dataclass(frozen=True)
class Place:
    """A tree, a store of it, and a root where it is cached. With an agent, the task TASK uses it."""

    source: Path
    store: Path
    dsctl: Dsctl
    has_agent: bool = False

    def words(self, text: str) -> list[str]:
        paths = {"SOURCE": str(self.source), "STORE": str(self.store), "NEW": f"{self.store}-new", "TASK": TASK}
        return [paths.get(word, word) for word in text.split()]


def _make_tree(folder: Path) -> Path:
    (folder / "empty").mkdir(parents=True)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep" / "er" / "b.bin").write_bytes(bytes(range(256)) * 100)
    (folder / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "link").symlink_to("deep/run.sh")
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    return folder


def _make_place(folder: Path) -> Place:
    made = Place(_make_tree(folder / "tiny"), folder / "store", Dsctl(folder / "root"))
    made.dsctl.ok("pack", made.source, made.store)
    made.dsctl.ok("cache", made.store)
    return made


@pytest.fixture(scope="module", params=["embedded", "agent"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same with and without an agent that holds the root."""
    folder = tmp_path_factory.mktemp("place")
    if request.param == "embedded":
        yield _make_place(folder)
        return
    with agent(folder / "root") as running:
        made = replace(_make_place(folder), has_agent=True)
        body = {"owner": {"name": "me"}, "datasets": [{"source": str(made.store)}]}
        assert running.ask("PUT", f"/v1/tasks/{TASK}", body).status == 200
        yield made


def _run(*line: str | Path) -> Done:
    """Runs dsctl with nothing but these words, and a root that they must change."""
    environment = Dsctl(Path("/nonexistent")).variables() | {"DSAGENT_ROOT": "/proc/not this root", "NO_COLOR": "1"}
    return run_forked([*map(str, line)], environment)


def test_every_verb_is_called() -> None:
    single = {name for name in MODULES if not name.startswith("_")} - {"run", "completion", "explain"}
    grouped = {f"{group} {verb}" for group, (_, verbs) in GROUPS.items() for verb in verbs}
    called = {" ".join(verb.words.split()[: 2 if verb.words.split()[0] in GROUPS else 1]) for verb in VERBS}
    assert called == single | grouped


@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_options_before_and_after(place: Place, verb: Verb) -> None:
    options = f"--root {place.dsctl.root} --capacity 10G --keep-free=1MiB -o json --quiet -v --timeout 60s"
    options += " --progress plain"
    words = place.words(verb.words)
    for line in ([*options.split(), *words], [*words, *options.split()]):
        for before in verb.before:
            place.dsctl.ok(*place.words(before))
        done = _run(*line)
        if verb.of_agent and not place.has_agent:
            assert (done.code, done.out, done.problem["exit_code"]) == (7, b"", 7), done
            assert f"dsagent serve --root {place.dsctl.root}" in done.problem["hint"]
            continue
        assert done.code == 0, done
        _check_document(verb, done.json)
        if verb.on_root:
            said = done.err.splitlines()
            assert "setting: capacity = 10000000000 (--capacity)" in said
            assert "setting: keep_free = 1048576 (--keep-free)" in said
        assert "note:" not in done.err  # --quiet


def _check_document(verb: Verb, document: Any) -> None:
    assert isinstance(document, list) is verb.listing
    assert document, "there is nothing to look at"
    for item in document if verb.listing else [document]:
        assert verb.fields <= set(item)
        for name, wanted in verb.items.items():
            assert item[name], f"{name} has nothing to look at"
            assert all(wanted <= set(part) for part in item[name])
        for name, value in item.items():
            _check_type(name, value)


def _check_type(name: str, value: object) -> None:
    if name in ("files", "bytes", "used", "free", "capacity", "reserved") or name.endswith("_bytes"):
        assert type(value) is int
    elif name == "seconds":
        assert type(value) is float
    elif name in ("last_used", "expires", "published") and value is not None:
        assert isinstance(value, str)
        assert value.endswith("Z")
        assert datetime.fromisoformat(value).tzinfo == UTC


def test_run_takes_the_options_too(place: Place) -> None:
    options = ["--root", str(place.dsctl.root), "-ojson", "-q", "--capacity", "10G", "--timeout", "60"]
    show = ["--", "sh", "-c", 'echo "$DSAGENT_DATASET_TINY" -o "$@"; exit 7', "sh", "--root", "x"]
    path = place.dsctl.ok("path", "tiny")["path"]
    for line in (["run", "tiny", *options], [*options, "run", "tiny"]):
        done = _run(*line, *show)
        assert (done.code, done.out.decode()) == (7, f"{path} -o --root x\n"), done


def test_a_root_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    dsctl = Dsctl(tmp_path / "root")
    assert dsctl.ok("ls") == []
    assert dsctl.ok("lease", "ls") == []
    assert dsctl.ok("df")["used"] == 0
    assert not dsctl.root.exists()


def test_output_for_people(place: Place) -> None:
    listed = place.dsctl.run("ls").out.decode().splitlines()
    assert listed[0].split()[:3] == ["DATASET", "VERSION", "FILES"]
    assert listed[1].split()[0] == "tiny"
    path = place.dsctl.run("path", "tiny").out.decode()
    assert Path(path.rstrip("\n"), "a.txt").read_text() == "a"
    assert path.strip() in place.dsctl.run("ls", "-o", "wide").out.decode()


def test_cache_without_a_lease_says_what_keeps_it(place: Place) -> None:
    assert "dsctl run tiny -- COMMAND" in place.dsctl.run("cache", place.store).err.splitlines()[-1]
    assert "dsctl run" not in place.dsctl.run("cache", place.store, "--lease", "me").err


def test_output_of_names(place: Place) -> None:
    name = f"tiny@{place.dsctl.ok('path', 'tiny')['version']}\n"
    for verb in ("ls", "path tiny", "verify tiny", "cache STORE", "ls STORE"):
        assert place.dsctl.run(*place.words(verb), "-o", "name").out.decode() == name


def test_yaml_says_what_json_says(place: Place) -> None:
    assert yaml.safe_load(place.dsctl.run("ls", "-o", "yaml").out) == place.dsctl.ok("ls")


def test_names_that_are_not_utf8_and_names_that_move_the_cursor(tmp_path: Path) -> None:
    source = _make_tree(tmp_path / "odd")
    (source / "\udcff.txt").write_text("")
    (source / "new\nline").write_text("")
    dsctl, plain = Dsctl(tmp_path / "root"), _make_tree(tmp_path / "plain")
    found = dsctl.ok("diff", plain, source)
    assert found["added"] == ["new\nline", "\\xff.txt"]
    assert [base64.b64decode(raw) for raw in found["added_b64"]] == [b"new\nline", b"\xff.txt"]
    assert dsctl.run("diff", plain, source).out.splitlines()[:2] == [rb"+ new\nline", rb"+ \xff.txt"]


def test_a_root_that_is_not_utf8(tmp_path: Path) -> None:
    dsctl = Dsctl(tmp_path / "\udce9")
    dsctl.ok("cache", _make_tree(tmp_path / "tiny"))
    (listed,) = dsctl.ok("ls")
    assert "/\\xe9/" in listed["path"]
    raw = base64.b64decode(listed["path_b64"])
    assert dsctl.run("path", "tiny").out == raw + b"\n"
    assert Path(os.fsdecode(raw), "a.txt").read_text() == "a"


def test_an_update_says_what_it_reused(tmp_path: Path) -> None:
    place = _make_place(tmp_path)
    (place.source / "a.txt").write_text("changed")
    place.dsctl.ok("pack", place.source, place.store)
    done = place.dsctl.ok("cache", place.store)
    assert (done["outcome"], done["fetched_bytes"]) == ("updated", len("changed"))
    assert done["reused_files"] == 2


def test_progress_is_bytes_files_rate_and_time_left(place: Place) -> None:
    said = place.dsctl.run("verify", "tiny", "--progress", "plain").err
    amounts = r"[\d.]+ kB of [\d.]+ kB, \d of \d files"
    assert re.search(rf"^verify tiny: {amounts}, [\d.]+ .?B/s, [\d,]+ files/s, ETA [\d.]+ s$", said, re.MULTILINE)
    assert place.dsctl.run("verify", "tiny", "--progress", "none").err == ""
    assert place.dsctl.run("verify", "tiny", "--quiet").err == ""


def test_version(place: Place) -> None:
    said = f"dsctl {__version__}\n".encode()
    assert (_run("--version").out, _run("ls", "--version").out) == (said, said)
    version = place.dsctl.ok("path", "tiny")["version"]
    assert place.dsctl.ok("cache", place.store, "--version", version)["outcome"] == "hit"


def test_a_listing_loads_nothing_large(place: Place) -> None:
    loaded = _loaded(place.dsctl, "ls")
    assert loaded & {"dsagent.service.listing", "dsagent.adapters.agent_client"}
    large = {
        "asyncio",
        "boto3",
        "fastapi",
        "fsspec",
        "IPython",
        "obstore",
        "pydantic",
        "requests",
        "rich",
        "yaml",
    }
    assert loaded & large == set()


def _loaded(dsctl: Dsctl, *line: str) -> set[str]:
    profiled = Dsctl(dsctl.root, {"PYTHONPROFILEIMPORTTIME": "1"}).run(*line)
    assert profiled.code == 0, profiled
    return {text.rpartition("|")[2].strip() for text in profiled.err.splitlines() if "|" in text}


EVERY = ["", *MODULES, *GROUPS, *(f"{group} {verb}" for group, (_, verbs) in GROUPS.items() for verb in verbs)]


@pytest.mark.parametrize("verb", EVERY)
def test_every_help_has_an_example_that_parses(verb: str) -> None:
    text = make_reader(_find(verb.split())).format_help()
    shown = text.partition("Example:\n")[2].partition("\n\n")[0].splitlines()
    assert shown
    for line in shown:
        words = [word.strip("<($)") for word in shlex.split(line)]
        arguments = words[words.index("dsctl") + 1 :]
        assert verb.split() == arguments[: len(verb.split())]
        if "--help" not in arguments:
            _parse(arguments)


def _find(path: Sequence[str]) -> Command:
    command = make_command(path[0] if path else "")
    for name in path:
        command = command.commands[name]
    return command


def _parse(arguments: list[str]) -> None:
    """Parses as dsctl does, and runs nothing; raises the parser's errors."""
    found = hoist(arguments)
    parse(make_command(found.verb), found.verb, found.ordered)
