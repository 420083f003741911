"""The real servers that tests share: each is started when first asked for and ends with the test run."""

import atexit
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tools.hdfs import start_hdfs
from tools.moto import start_moto
from tools.servers import ToolMissingError, start_versitygw

_running = ExitStack()
atexit.register(_running.close)


def _directory() -> Path:
    return Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="dsagent-test-")))


@cache
def versitygw() -> dict[str, str]:
    """The environment by which S3 clients find a gateway."""
    try:
        return _running.enter_context(start_versitygw(_directory())).environment()
    except ToolMissingError as error:
        pytest.skip(str(error))


@cache
def moto() -> dict[str, str]:
    """The environment by which S3 clients find moto's server."""
    endpoint = _running.enter_context(start_moto())
    return {
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }


@cache
def hdfs() -> str:
    """host:port of a name node's WebHDFS."""
    try:
        return _running.enter_context(start_hdfs(_directory()))
    except ToolMissingError as error:
        pytest.skip(str(error))
