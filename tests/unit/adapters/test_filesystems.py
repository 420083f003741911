"""What fsspec finds, and what it does not."""

import pytest
from fsspec.registry import known_implementations

from dsagent.adapters.filesystems import FilesystemSource
from dsagent.adapters.fsspec_files import _pip_command
from dsagent.core.errors import UsageError
from dsagent.core.ports import Location


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        FilesystemSource(Location("nowhere://host/data"))


def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"class": "no_such_package.Files", "err": "Install no-such-package to access it"}
    monkeypatch.setitem(known_implementations, "absent", known)
    with pytest.raises(UsageError, match="pip install no-such-package"):
        FilesystemSource(Location("absent://host/data"))


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("Please install gcsfs to access Google Storage", "pip install gcsfs"),
        ("Install adlfs to access Azure Datalake Gen2", "pip install adlfs"),
        ('SFTPFileSystem requires "paramiko" to be installed', "pip install paramiko"),
        ('HTTPFileSystem requires "requests" and "aiohttp" to be installed', "pip install requests aiohttp"),
        ("pyarrow and local java libraries required for HDFS", "pip install pyarrow"),
        ("Install the requests package to use the gist FS", "pip install requests"),
    ],
)
def test_the_command_is_read_from_what_fsspec_says(message: str, command: str) -> None:
    assert _pip_command(message) == command


def test_a_password_is_not_shown() -> None:
    source = FilesystemSource(Location("webhdfs://user:pa%40ss@127.0.0.1:1/data/"))
    assert source.location.url == "webhdfs://user@127.0.0.1:1/data"
    assert source.location.options == (("password", "pa@ss"),)
    assert "pa" not in repr(source.location).replace("path", "")
