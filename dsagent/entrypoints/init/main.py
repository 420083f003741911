"""The commands."""

import os
import signal
import sys
import time
from types import FrameType

from dsagent import __version__
from dsagent.contract import ExitCode
from dsagent.entrypoints.init.answers import Task
from dsagent.entrypoints.init.datasets import Wanted
from dsagent.entrypoints.init.failure import Failure
from dsagent.entrypoints.init.links import cached_tree, mounted_source, put_link
from dsagent.entrypoints.init.quantities import human_duration
from dsagent.entrypoints.init.report import came, say
from dsagent.entrypoints.init.settings import Settings, load_settings

COMMANDS = ("run", "start", "wait")
USAGE = """\
Usage: dsagent-init [run | start | wait]

  run    ask the node's agent for the pod's datasets, wait for them, link them into place (the default)
  start  ask and return
  wait   wait for what start asked for, link it into place

Settings are variables of the environment; DSAGENT_DATASETS is the one that is always needed. Example:
  DSAGENT_DATASETS=imagenet=s3://bucket/imagenet,coco=/mnt/nfs/coco dsagent-init
See docs/guides/init-container.md.
"""


def main() -> int:
    """Runs dsagent-init on the process's arguments; returns its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the first process of a container ignores what it does not handle
        signal.signal(number, _stop)
    arguments = sys.argv[1:] or ["run"]
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        return ExitCode.OK
    if arguments == ["--version"]:
        sys.stdout.write(f"dsagent-init {__version__}\n")
        return ExitCode.OK
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        sys.stderr.write(USAGE)
        return ExitCode.USAGE
    try:
        _do(arguments[0], load_settings(os.environ))
    except Failure as failure:
        say(f"dsagent-init: {failure}")
        return failure.code
    return ExitCode.OK


def _do(command: str, settings: Settings) -> None:
    began = time.monotonic()
    if settings.mode == "cache":
        said = _start(settings) if command == "start" else _bring(settings, asked=command == "wait")
    elif command == "start":
        said = ["nothing to ask for in local mode"]
    else:
        said = [_link_source(settings, wanted) for wanted in settings.datasets]
    verb = "asked" if command == "start" else "in place"
    sys.stdout.write(f"{verb} after {human_duration(time.monotonic() - began)}: {'; '.join(said)}\n")
    sys.stdout.flush()


def _start(settings: Settings) -> list[str]:
    from dsagent.entrypoints.init.client import Agent  # noqa: PLC0415 - not needed in local mode
    from dsagent.entrypoints.init.waiting import Waiting  # noqa: PLC0415

    try:
        task = Waiting(settings, Agent(settings)).ask()
    except Failure as failure:
        _must_fail(settings, failure)
        return [f"{failure} (wait will see whether the job has to read the sources)"]
    return [f"{part.name} is {part.state}" for part in task.datasets.values()]


def _bring(settings: Settings, *, asked: bool) -> list[str]:
    """Waits for the datasets and links them; where that fails, and is allowed to, their sources."""
    from dsagent.entrypoints.init.client import Agent  # noqa: PLC0415 - not needed in local mode
    from dsagent.entrypoints.init.waiting import Waiting  # noqa: PLC0415

    waiting = Waiting(settings, Agent(settings))
    failed: Failure | None = None
    try:
        waiting.wait(asked=asked)
    except Failure as failure:
        _must_fail(settings, failure)
        failed = failure
    found = [_target(settings, wanted, waiting.task, failed) for wanted in settings.datasets]
    for wanted, (target, _) in zip(settings.datasets, found, strict=True):
        put_link(settings, wanted.name, target)
    return [said for _, said in found]


def _target(settings: Settings, wanted: Wanted, task: Task | None, failed: Failure | None) -> tuple[str, str]:
    """Where a dataset's link is to lead, and what came of the dataset."""
    part = task.datasets[wanted.name] if task else None
    if part is not None and part.state == "ready":
        try:
            return cached_tree(settings, part), f"{wanted.name} {came(part)}"
        except Failure as failure:
            _must_fail(settings, failure)
            failed = failure
    if failed is None:
        raise AssertionError(wanted.name)
    try:
        target = mounted_source(settings, wanted)
    except Failure as unmounted:
        raise Failure(failed.code, f"{failed}; {unmounted}") from unmounted
    say(f"{wanted.name} is not cached: {part.error.detail if part and part.error else failed}")
    return target, _is_read_from(wanted, target)


def _must_fail(settings: Settings, failure: Failure) -> None:
    """Raises the failure again unless the job may read the sources instead. A bad setting is to be seen."""
    if settings.on_failure == "fail" or failure.code == ExitCode.USAGE:
        raise failure


def _link_source(settings: Settings, wanted: Wanted) -> str:
    target = mounted_source(settings, wanted)
    put_link(settings, wanted.name, target)
    return _is_read_from(wanted, target)


def _is_read_from(wanted: Wanted, target: str) -> str:
    return f"{wanted.name} is read from its source, {target}"


def _stop(number: int, _frame: FrameType | None) -> None:
    os.write(2, b"dsagent-init: stopped; the agent goes on, and so does the next start of this container\n")
    os._exit(128 + number)
