"""`import dsagent`: the verbs as functions, and the object that holds a dataset, in the programs that use them."""

import dataclasses
import json
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dsagent
from tests.support.command import HANG_SECONDS, REPOSITORY, Dsctl
from tests.support.trees import make_files

MANY = 400  # files: enough that worker processes are started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_files(tmp_path / "many", MANY, directories=4)
    return tmp_path / "many"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_files(tmp_path / "small", 3, directories=1)
    return tmp_path / "small"


def _script(folder: Path, text: str) -> list[str]:
    """A program of these lines."""
    path = folder / "program.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def _environment(root: Path) -> dict[str, str]:
    return Dsctl(root).variables() | {"DSAGENT_ROOT": str(root)}


def _run(command: list[str], root: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=_environment(root), timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_first_line_of_an_unguarded_script(tree: Path, root: Path, tmp_path: Path) -> None:
    program = f"import dsagent; dataset = dsagent.cache({str(tree)!r})\nprint(dataset.outcome, dataset.files)\n"
    done = _run(_script(tmp_path, program), root)
    assert (done.stdout, done.stderr) == (f"fetched {MANY}\n", "")  # once, and silently


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_worker_process(tree: Path, root: Path, tmp_path: Path, method: str) -> None:
    """As DataLoader makes them: such a process may not have children of multiprocessing."""
    program = f"""
import multiprocessing, dsagent

def work(results):
    with dsagent.cache({str(tree)!r}) as dataset:
        results.put((dataset.outcome, dataset.files))

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    results = context.Queue()
    process = context.Process(target=work, args=(results,), daemon=True)
    process.start()
    print(*results.get(timeout={HANG_SECONDS}))
    process.join()
"""
    assert _run(_script(tmp_path, program), root).stdout == f"fetched {MANY}\n"


def test_eight_ranks_make_one_flight(tree: Path, root: Path, tmp_path: Path) -> None:
    program = (
        f"import dsagent; dataset = dsagent.cache({str(tree)!r})\n"
        "print(dataset.outcome, dataset.fetched_bytes > 0, dataset.path)\n"
    )
    command = _script(tmp_path, program)
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(root)) for _ in range(8)]
    said = [rank.communicate(timeout=HANG_SECONDS)[0].split() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8
    assert sorted(outcome for outcome, _, _ in said) == ["fetched", *["hit"] * 7]
    assert [fetched for _, fetched, _ in said].count("True") == 1
    assert len({path for _, _, path in said}) == 1


@pytest.fixture
def kernel(root: Path) -> Iterator[Any]:
    from jupyter_client.manager import KernelManager  # noqa: PLC0415 - slow to import

    manager = KernelManager()
    manager.start_kernel(env=_environment(root) | {"PYTHONWARNINGS": "ignore"}, cwd=str(REPOSITORY))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=HANG_SECONDS)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.filterwarnings("ignore")  # the kernel's own libraries
def test_a_running_notebook_kernel_shows_a_bar(kernel: Any, tree: Path, root: Path) -> None:
    cell = f"import dsagent\ndataset = dsagent.cache({str(tree)!r})\nprint(dataset.files)"
    request = kernel.execute(cell)
    shown, printed = [], ""
    while True:
        message = kernel.get_iopub_msg(timeout=HANG_SECONDS)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append((message["msg_type"], content["data"], content["transient"]["display_id"]))
        elif message["msg_type"] == "stream":
            printed += content["text"]
        elif message["msg_type"] == "status" and content["execution_state"] == "idle":
            break
    assert printed == f"{MANY}\n"
    assert shown[0][0] == "display_data"
    assert {kind for kind, _, _ in shown[1:]} <= {"update_display_data"}
    assert len({display_id for _, _, display_id in shown}) == 1
    last = shown[-1][1]
    assert f"{MANY} of {MANY} files" in last["text/plain"]
    assert '<progress max="1" value="1.000">' in last["text/html"]
    assert len(Dsctl(root).ok("lease", "ls")) == 1


def test_a_lease_until_release_or_the_end_of_the_with(small: Path, root: Path) -> None:
    with dsagent.cache(small, root=root) as dataset:
        (lease,) = dsagent.lease_ls(root=root)
        assert (lease.dataset, lease.version, lease.expires) == ("small", dataset.version, None)
        assert str(os.getpid()) in lease.owner
        with pytest.raises(dsagent.InUse):
            dsagent.evict("small", force=True, root=root)
    assert dsagent.lease_ls(root=root) == []
    dataset = dsagent.cache(small, root=root)
    assert len(dsagent.lease_ls(root=root)) == 1
    dataset.release()
    dataset.release()
    assert dsagent.lease_ls(root=root) == []


def test_a_lease_lives_as_long_as_the_interpreter(small: Path, root: Path, tmp_path: Path) -> None:
    program = f"""
import sys, dsagent
path = dsagent.cache({str(small)!r}).path  # the object itself is gone after this line
print(path, flush=True)
sys.stdin.readline()
"""
    command = _script(tmp_path, program)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(root)
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        assert len(dsagent.lease_ls(root=root)) == 1
        running.communicate("\n", timeout=HANG_SECONDS)
    assert dsagent.lease_ls(root=root) == []


def test_a_program_that_is_given_the_descriptor_holds_the_lease(small: Path, root: Path) -> None:
    dataset = dsagent.cache(small, root=root)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[dataset.lease_descriptor()]) as child:
        dataset.release()
        assert len(dsagent.lease_ls(root=root)) == 1
        child.communicate(timeout=HANG_SECONDS)
    assert dsagent.lease_ls(root=root) == []


def test_the_result_is_a_path_and_frozen(small: Path, root: Path) -> None:
    with dsagent.cache(small, "named", root=root) as dataset:
        assert sorted(os.listdir(dataset)) == sorted(os.listdir(small))
        assert Path(dataset) == dataset.path == dsagent.path("named", root=root)
        with pytest.raises(dataclasses.FrozenInstanceError):
            dataset.files = 0  # type: ignore[misc]


def test_a_pickled_copy_holds_no_lease(small: Path, root: Path) -> None:
    with dsagent.cache(small, root=root) as dataset:
        copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
        assert copy == dataset
        copy.release()
        assert len(dsagent.lease_ls(root=root)) == 1
        with pytest.raises(dsagent.UsageError):
            copy.lease_descriptor()


def test_progress_calls_back(tree: Path, root: Path) -> None:
    seen: queue.SimpleQueue[dsagent.Progress] = queue.SimpleQueue()
    with dsagent.cache(tree, root=root, progress=seen.put) as dataset:
        pass
    steps = [seen.get() for _ in range(seen.qsize())]
    assert (steps[-1].files, steps[-1].total_files, steps[-1].bytes) == (MANY, MANY, dataset.bytes)
    assert [step.bytes for step in steps] == sorted(step.bytes for step in steps)
    assert steps[-1].fraction == 1.0


def test_a_callback_that_raises_stops_nothing(small: Path, root: Path) -> None:
    def fail(_progress: dsagent.Progress) -> None:
        raise RuntimeError("no display")

    with dsagent.cache(small, root=root, progress=fail) as dataset:
        assert dataset.files == 3


def test_the_other_verbs(small: Path, root: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    packed = dsagent.pack(small, store, name="packed")
    assert [stored.version for stored in dsagent.ls_store(store)] == [packed.version]
    assert dsagent.store_check(store).bad == []
    assert dsagent.store_forget(store, keep_last=1).kept == 1
    assert dsagent.store_prune(store, dry_run=True).deleted == []
    dsagent.cache(store, root=root, capacity="1G").release()
    assert [cached.version for cached in dsagent.ls(root=root)] == [packed.version]
    assert dsagent.df(root=root, capacity=10**9).capacity <= 10**9
    assert dsagent.verify("packed", root=root).bad == []
    assert dsagent.diff(small, "packed", root=root).changed == []
    lease = dsagent.lease_add("packed", "me", 60, root=root)
    assert dsagent.lease_renew(lease.id, root=root).owner == "me"
    assert dsagent.lease_release("packed", "me", root=root).id == lease.id
    assert {finding.status for finding in dsagent.doctor(root=root)} <= {"ok", "warn"}
    assert dsagent.run(["packed"], ["sh", "-c", 'exit $(ls "$DSAGENT_DATASET_PACKED" | wc -l)'], root=root) == len(
        os.listdir(small)
    )
    assert [evicted.version for evicted in dsagent.evict("packed", root=root).evicted] == [packed.version]
    assert dsagent.evict(need=1, root=root).evicted == []


def test_errors_are_the_packages_own(root: Path, tmp_path: Path) -> None:
    with pytest.raises(dsagent.NotCached):
        dsagent.path("nope", root=root)
    with pytest.raises(dsagent.SourceError):
        dsagent.cache(tmp_path / "nope", root=root)
    with pytest.raises(dsagent.UsageError):
        dsagent.evict(root=root)
    with pytest.raises(dsagent.DsagentError, match="no store"):
        dsagent.ls_store(tmp_path)


def test_what_the_package_offers() -> None:
    for name in dsagent.__all__:
        assert getattr(dsagent, name) is not None
    assert set(dsagent.__all__) <= set(dir(dsagent))
    with pytest.raises(AttributeError, match="nope"):
        dsagent.nope  # type: ignore[attr-defined]  # noqa: B018


def test_importing_loads_no_adapter_and_caching_no_command_line(small: Path, root: Path, tmp_path: Path) -> None:
    program = f"""
import json, sys, dsagent
before = [name for name in sys.modules if name.startswith("dsagent")]
dsagent.cache({str(small)!r})
print(json.dumps([before, [name for name in sys.modules if name in ("rich", "yaml", "asyncio", "fsspec")]]))
"""
    assert json.loads(_run(_script(tmp_path, program), root).stdout) == [["dsagent"], []]
