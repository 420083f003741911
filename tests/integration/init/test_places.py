"""dsagent-init looks whether the data are where the agent says, and makes the job's link to them."""

import os
from pathlib import Path

from tests.fakes.agent import FakeAgent, dataset
from tests.integration.init.conftest import OTHER_VERSION, ready
from tests.support.init import UID, Pod


def test_an_empty_directory_is_no_data(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    (tree / "file").unlink()
    done = pod.run()
    assert done.code == 13, done
    assert f"images is not where the agent says: {tree} is empty, but 1 files were promised" in done.err
    assert not pod.datasets.exists()


def test_a_version_without_files_may_be_empty(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    (tree / "file").unlink()
    serving.make = lambda _: [ready(tree, files=0, bytes=0)]
    done = pod.run()
    assert (done.code, pod.linked("images")) == (0, str(tree)), done


def test_another_version_is_not_the_data(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [dataset("images", path=str(tree), version=OTHER_VERSION)]
    done = pod.run()
    assert (done.code, f"{tree} holds another version than {OTHER_VERSION}" in done.err) == (13, True), done
    assert not pod.datasets.exists()


def test_a_root_that_is_not_mounted_here(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    done = pod.run()
    assert done.code == 13, done
    assert "mount the cache's root into this container, read-only, at the same path" in done.err


def test_a_root_that_is_mounted_elsewhere(pod: Pod, serving: FakeAgent, tree: Path, scratch: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    link = scratch / "root" / "pods" / UID / "images"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../versions/research/images/abc/data")
    mounted = pod.having(DSAGENT_ROOT=str(scratch / "root"))
    done = mounted.run()
    assert (done.code, pod.linked("images")) == (0, str(link)), done
    link.unlink()
    link.symlink_to("../not-ready")
    assert mounted.run().code == 13


def test_a_mount_that_only_the_job_has(pod: Pod, serving: FakeAgent) -> None:
    done = pod.having(DSAGENT_DATA_DIR="/run/dsagent/data/").run()
    assert (done.code, pod.linked("images")) == (0, "/run/dsagent/data/images"), done


def test_a_mount_of_the_tree_alone(pod: Pod, serving: FakeAgent, scratch: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    mount = scratch / "data" / "images"
    mount.mkdir(parents=True)
    mounted = pod.having(DSAGENT_DATA_DIR=str(mount.parent))
    empty = mounted.run()
    assert (empty.code, f"{mount} is empty" in empty.err) == (13, True), empty
    (mount / "file").touch()
    done = mounted.run()
    assert (done.code, pod.linked("images")) == (0, str(mount)), done


def test_a_mount_of_something_else(pod: Pod, serving: FakeAgent, scratch: Path, source: Path) -> None:
    done = pod.having(DSAGENT_DATA_DIR=str(source.parent)).run()
    assert (done.code, f"{source} is another folder than" in done.err) == (13, True), done


def test_a_link_is_replaced_and_what_is_no_link_stays(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    pod.datasets.mkdir()
    (pod.datasets / "images").symlink_to("/elsewhere")
    (pod.datasets / ".images.new").symlink_to("/left/by/a/kill")
    assert pod.run().code == 0
    assert pod.linked("images") == str(tree)
    assert os.listdir(pod.datasets) == ["images"]
    (pod.datasets / "images").unlink()
    (pod.datasets / "images").mkdir()
    (pod.datasets / "images" / "mine").touch()
    done = pod.run()
    assert (done.code, "mount an emptyDir at" in done.err) == (1, True), done
    assert (pod.datasets / "images" / "mine").exists()
