"""dsagent-init and the agent itself, as in a pod: data, credentials, space, kills."""

import getpass
import os
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from tests import servers
from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.init import UID, Pod
from tests.unit.contract.places import BucketPlace

pytestmark = pytest.mark.needs("root")  # by peer credentials root is an administrator

OTHER_UID = UID.replace("0b", "1c")
SECRET = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name
SLOW = ("--bandwidth", "200k")


@pytest.fixture
def source(scratch: Path) -> Path:
    folder = scratch / "nfs" / "images"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{number:02}.bin").write_bytes(os.urandom(20_000))
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to("../00.bin")
    return folder


@pytest.fixture
def running(scratch: Path) -> Iterator[AgentProcess]:
    with agent(scratch / "root") as started:
        yield started


def pod_of(running: AgentProcess, source: Path | str, name: str = "pod", **environment: str) -> Pod:
    asked = {"DSAGENT_AGENT": running.address, "DSAGENT_DATASETS": f"images={source}"}
    return Pod(running.root.parent / name, {**asked, **environment})


def assert_linked(pod: Pod, source: Path) -> None:
    trees.assert_published((pod.datasets / "images").resolve(), trees.look(source))


def wait_until_running(running: AgentProcess) -> None:
    end = time.monotonic() + HANG_SECONDS
    while (reply := running.ask("GET", f"/v1/tasks/{UID}?wait=1")).status == 404 or reply.json["state"] == "pending":
        assert time.monotonic() < end
    assert reply.json["state"] == "running"


def test_the_data_are_fetched_once_and_then_a_hit(running: AgentProcess, source: Path) -> None:
    pod = pod_of(running, source)
    first = pod.run()
    assert first.code == 0, first
    assert_linked(pod, source)
    assert "images fetched, 600 kB for 600 kB in 30 files" in first.out
    # Asked for in another way, it is not the same flight.
    text = f'[{{"name": "images", "source": "{source}", "options": {{"check": "content"}}}}]'
    other = pod_of(running, source, "other", POD_UID=OTHER_UID, DSAGENT_DATASETS=text).run()
    assert (other.code, "images hit, 600 kB in 30 files" in other.out) == (0, True), other
    again = pod.run()
    assert (again.code, "images fetched" in again.out) == (0, True), again


def test_the_version_is_looked_for_where_the_root_is_mounted(running: AgentProcess, source: Path) -> None:
    mounted = running.root.parent / "mounted"
    mounted.symlink_to(running.root)
    pod = pod_of(running, source, DSAGENT_ROOT=str(mounted))
    done = pod.run()
    assert (done.code, pod.linked("images")) == (0, f"{mounted}/pods/{UID}/images"), done
    assert_linked(pod, source)


def test_a_version_that_is_taken_from_the_pod_is_noticed(running: AgentProcess, source: Path) -> None:
    pod = pod_of(running, source, DSAGENT_ROOT=str(running.root))
    assert pod.run().code == 0
    link = running.root / "pods" / UID / "images"
    link.unlink()
    link.symlink_to("../not-ready")
    assert pod.run().code == 13


def test_start_asks_and_wait_waits(running: AgentProcess, source: Path) -> None:
    pod = pod_of(running, source)
    started = pod.run("start")
    assert (started.code, started.out.count("images is")) == (0, 1), started
    assert not pod.datasets.exists()
    done = pod.run("wait")
    assert done.code == 0, done
    assert_linked(pod, source)


def test_a_source_that_is_missing(running: AgentProcess, source: Path) -> None:
    done = pod_of(running, source / "missing").run()
    assert (done.code, f"{source}/missing" in done.err.splitlines()[-1]) == (3, True), done


def test_options_that_the_agent_does_not_know(running: AgentProcess, source: Path) -> None:
    text = f'[{{"name": "images", "source": "{source}", "options": {{"chek": "never"}}}}]'
    done = pod_of(running, source, DSAGENT_DATASETS=text).run()
    assert (done.code, "options.chek" in done.err) == (2, True), done


def test_two_containers_that_ask_for_different_things(running: AgentProcess, source: Path) -> None:
    assert pod_of(running, source).run("start").code == 0
    done = pod_of(running, source.parent).run()
    assert (done.code, "all init containers of a pod have to ask for the same" in done.err) == (8, True), done


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_lives_through_a_restart_of_the_agent(scratch: Path, source: Path, how: str) -> None:
    with agent(scratch / "root", *SLOW, "--drain", "0s") as running:
        pod = pod_of(running, source)
        client = pod.start()
        wait_until_running(running)
        running.kill() if how == "kill" else running.stop()
        client.until("does not answer")
        running.flags = ()
        running.start()
        done = client.end()
        assert done.code == 0, done
        assert "the agent answers again" in done.err
        assert_linked(pod, source)


def test_its_own_restart_goes_on_with_the_same_task(scratch: Path, source: Path) -> None:
    with agent(scratch / "root", "--bandwidth", "50k") as running:
        pod = pod_of(running, source)
        client = pod.start()
        client.until("ETA")
        client.process.send_signal(signal.SIGTERM)
        assert client.end().code == 143
        assert running.ask("PATCH", "/v1/limits", {"bandwidth": 0}).status == 200
        done = pod.run()
        assert done.code == 0, done
        assert_linked(pod, source)
        assert [task["id"] for task in running.ask("GET", "/v1/tasks").json] == [UID]


def test_what_can_never_fit_fails_at_once_and_the_job_may_read_the_source(scratch: Path, source: Path) -> None:
    with agent(scratch / "root", "--capacity", "100k") as running:
        pod = pod_of(running, source)
        done = pod.run()
        assert (done.code, "leased" in done.err.splitlines()[-1]) == (4, True), done
        instead = pod.having(DSAGENT_ON_FAILURE="source").run()
        assert (instead.code, pod.linked("images")) == (0, str(source)), instead


def test_waits_for_space_until_its_time_is_over(scratch: Path, source: Path) -> None:
    with agent(scratch / "root", "--capacity", "1200k") as running:
        assert pod_of(running, source).run().code == 0
        (source.parent / "coco").mkdir()
        (source.parent / "coco" / "file").write_bytes(os.urandom(600_000))
        asked = f"coco={source.parent}/coco"
        other = pod_of(running, source, "other", DSAGENT_DATASETS=asked, POD_UID=OTHER_UID, DSAGENT_TIMEOUT="2s")
        late = other.run()
        assert (late.code, "coco still waits for space after 2.0 s" in late.err) == (4, True), late
        client = other.having(DSAGENT_TIMEOUT="1m").start()
        client.until("coco: waiting: ")
        assert running.ask("DELETE", f"/v1/tasks/{UID}").status == 204
        done = client.end()
        assert (done.code, "1 evicted for it" in done.out) == (0, True), done


def test_a_pod_is_known_by_its_token(scratch: Path, source: Path) -> None:
    tokens = scratch / "tokens.yaml"
    tokens.write_text(f"- {{token: pod-secret, role: pod, namespace: research, uid: {UID}}}\n")
    (scratch / "token").write_text("pod-secret\n")
    (scratch / "wrong").write_text("wrong-secret\n")
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", str(source.parent)) as running:
        pod = pod_of(running, source, DSAGENT_TOKEN_FILE=str(scratch / "token"))
        done = pod.run()
        assert done.code == 0, done
        assert_linked(pod, source)
        for other in ({"DSAGENT_TOKEN_FILE": str(scratch / "wrong")}, {"POD_UID": OTHER_UID}):
            refused = pod.having(**other).run()
            assert (refused.code, "secret" in str(refused)) == (11, False), refused


@pytest.mark.needs("setpriv")
def test_a_pod_need_not_be_root(scratch: Path, source: Path) -> None:
    (scratch / "tokens").write_text(f"- {{token: pod-secret, role: pod, namespace: research, uid: {UID}}}\n")
    (scratch / "token").write_text("pod-secret")
    with agent(scratch / "root", "--tokens", str(scratch / "tokens"), "--sources", str(source.parent)) as running:
        pod = pod_of(running, source, DSAGENT_TOKEN_FILE=str(scratch / "token"), DSAGENT_ROOT=str(running.root))
        pod.datasets.mkdir()
        os.chown(pod.datasets, 65534, 65534)
        nobody = replace(pod, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        done = nobody.run()
        assert done.code == 0, done
        assert_linked(pod, source)
        # It sees which version is there.
        (manifest,) = (pod.datasets / "images").resolve().parent.glob("manifest/manifests/*.json")
        manifest.rename(manifest.with_name("0" * 32 + ".json"))
        assert nobody.run().code == 13


@pytest.fixture(params=[pytest.param("versitygw", marks=pytest.mark.needs("go")), "moto"])
def server(request: pytest.FixtureRequest) -> dict[str, str]:
    # moto takes any key.
    return servers.versitygw() if request.param == "versitygw" else {**servers.moto(), SECRET: uuid.uuid4().hex}


def test_credentials_of_the_pod_are_sent_again_after_a_kill_and_shown_nowhere(
    scratch: Path, source: Path, server: dict[str, str]
) -> None:
    bucket = BucketPlace(server)
    for path in source.glob("*.bin"):
        bucket.write(path.name.encode(), path.read_bytes())
    known = {name: "" for name in os.environ if name.startswith("AWS_")}
    with agent(scratch / "root", *SLOW, environment={**known, "HOME": str(scratch)}) as running:
        pod = pod_of(running, bucket.location.url, **server)
        client = pod.start()
        wait_until_running(running)
        running.kill()
        running.flags = ()
        running.start()
        done = client.end()
        assert done.code == 0, done
        trees.assert_same(
            trees.without_times(trees.look((pod.datasets / "images").resolve())),
            {path: seen for path, seen in trees.without_times(trees.look(source)).items() if b".bin" in path},
        )
        secret = server[SECRET]
        assert secret not in str(done)
    files = [path for folder in (running.root, pod.folder) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in (*files, running.log) if secret.encode() in path.read_bytes()] == []


@pytest.mark.needs("java")
def test_hdfs_is_asked_as_the_pods_user(running: AgentProcess) -> None:
    host, _, port = servers.hdfs().partition(":")
    folder = f"/{uuid.uuid4().hex}/images"
    files = fsspec.filesystem("webhdfs", host=host, port=int(port), user=getpass.getuser())
    files.makedirs(folder)
    files.pipe_file(f"{folder}/file", b"content")
    pod = pod_of(running, f"webhdfs://{host}:{port}{folder}", HADOOP_USER_NAME="alice")
    done = pod.run()
    assert (done.code, (pod.datasets / "images" / "file").read_text()) == (0, "content"), done
    # That server lets everybody read; what is no name of a user it refuses.
    refused = pod.having(HADOOP_USER_NAME="1 is no user", POD_UID=OTHER_UID).run()
    assert refused.code != 0
    assert "1 is no user" in refused.err
