"""dsagent-init where the job reads the source itself: instead of what failed, or in local mode."""

from pathlib import Path

from tests.fakes.agent import FakeAgent, answer, dataset, problem
from tests.integration.init.conftest import ready
from tests.support.init import UID, Pod


def test_the_job_may_read_the_source_instead(pod: Pod, serving: FakeAgent, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(4, "it could never fit"))]
    done = pod.having(DSAGENT_ON_FAILURE="source").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "images is not cached: it could never fit" in done.err
    assert f"images is read from its source, {source}" in done.out


def test_the_source_instead_of_an_agent_that_is_away(pod: Pod, source: Path) -> None:
    done = pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_TIMEOUT="1s").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "there is no such socket" in done.err


def test_the_source_instead_of_what_is_not_in_place(pod: Pod, serving: FakeAgent, source: Path, tree: Path) -> None:
    (tree / "file").unlink()
    done = pod.having(DSAGENT_ON_FAILURE="source").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "images is not cached: images is not where the agent says" in done.err


def test_what_is_ready_is_used_where_another_fails(pod: Pod, serving: FakeAgent, source: Path, tree: Path) -> None:
    failed = dataset("coco", "failed", error=problem(3, "gone"))
    serving.make = lambda _: [failed, dataset("images", "running")]
    both = pod.having(DSAGENT_DATASETS=f"coco=file://{source},images={source}", DSAGENT_ON_FAILURE="source")
    client = both.start()
    client.until("coco: failed: gone")
    serving.show(UID, failed, ready(tree))
    done = client.end()
    assert (done.code, pod.linked("coco"), pod.linked("images")) == (0, str(source), str(tree)), done


def test_one_failure_is_enough_where_the_source_is_no_help(pod: Pod, serving: FakeAgent, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(3, "gone")), dataset("coco", "running")]
    done = pod.having(DSAGENT_DATASETS=f"images={source},coco={source}").run()
    assert (done.code, done.err) == (3, "dsagent-init: images: gone\n")


def test_a_url_cannot_be_linked(pod: Pod, serving: FakeAgent, scratch: Path, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(5, "bad bytes"))]
    url = pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_DATASETS="images=s3://bucket/images")
    done = url.run()
    assert done.code == 5, done
    assert "images: bad bytes; images cannot be read from its source: that is a URL and no folder; mount it" in done.err
    mounted = url.having(DSAGENT_SOURCE_DIR=str(source.parent)).run()
    assert (mounted.code, pod.linked("images")) == (0, str(source)), mounted


def test_bad_settings_are_not_passed_over(pod: Pod, serving: FakeAgent) -> None:
    serving.answers = [answer(422, problem(2, "datasets.0.options.chek: no such field"))]
    assert pod.having(DSAGENT_ON_FAILURE="source").run().code == 2
    assert pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_TIMEOUT="soon").run().code == 2


def test_local_mode_asks_nobody(pod: Pod, source: Path) -> None:
    local = pod.having(DSAGENT_MODE="local", POD_UID="", POD_NAME="", POD_NAMESPACE="")
    started = local.run("start")
    assert (started.code, pod.datasets.exists()) == (0, False), started
    for command in ("run", "wait"):
        done = local.run(command)
        assert (done.code, pod.linked("images"), done.err) == (0, str(source), ""), done


def test_local_mode_does_not_take_a_missing_mount_for_data(pod: Pod, source: Path) -> None:
    local = pod.having(DSAGENT_MODE="local")
    (source / "file").unlink()
    empty = local.run()
    assert (empty.code, f"{source} is empty; mount it" in empty.err) == (3, True), empty
    source.rmdir()
    missing = local.run()
    assert (missing.code, f"there is no folder {source}; mount it" in missing.err) == (3, True), missing
    url = local.having(DSAGENT_DATASETS="images=s3://bucket/images").run()
    assert (url.code, "that is a URL and no folder" in url.err) == (3, True), url
    assert not pod.datasets.exists()
