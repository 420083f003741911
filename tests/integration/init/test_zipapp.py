"""dsagent-init as one file."""

import io
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import dsagent
from dsagent.entrypoints.init.zipapp import build
from tests.support.command import REPOSITORY
from tests.support.init import Pod

# All modules of the zipapp are imported where there is nothing but it and the standard library.
IMPORT_ALL = """
import sys, zipfile
sys.path.insert(0, sys.argv[1])
for name in zipfile.ZipFile(sys.argv[1]).namelist():
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name.endswith(".py") and not module.endswith("__main__"):
        __import__(module)
tops = {name.partition(".")[0] for name in sys.modules}
print(*sorted(name for name in tops if name not in sys.stdlib_module_names))
print(*{module.__file__ for name, module in sys.modules.items() if name.startswith("dsagent")}, sep="\\n")
"""


def test_nothing_but_itself_and_the_standard_library_is_loaded(scratch: Path) -> None:
    file = scratch / "init.pyz"
    file.write_bytes(build())
    command = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    tops, *files = done.stdout.splitlines()
    assert set(tops.split()) == {"__main__", "dsagent"}
    assert all(name.startswith(f"{file}/") for name in files)


def test_it_holds_the_client_and_contract() -> None:
    names = ZipFile(io.BytesIO(build())).namelist()
    init = REPOSITORY / "dsagent" / "entrypoints" / "init"
    own = {f"dsagent/entrypoints/init/{path.name}" for path in init.glob("*.py")}
    others = {"__main__.py", "dsagent/__init__.py", "dsagent/contract.py", "dsagent/entrypoints/__init__.py"}
    sources = own - {"dsagent/entrypoints/init/zipapp.py"} | others
    assert set(names) == sources | {f"{name}c" for name in sources}


@pytest.mark.parametrize(
    "changed", [{".pyc": None}, {".py": None}, {".pyc": b"of another Python"}, {".py": b"not read"}], ids=str
)
def test_it_runs_compiled_and_from_its_sources(scratch: Path, changed: dict[str, bytes | None]) -> None:
    pod = Pod(scratch / "pod")
    with ZipFile(io.BytesIO(build())) as built, ZipFile(pod.folder / "dsagent-init.pyz", "w") as other:
        for name in built.namelist():
            data = changed.get(Path(name).suffix, built.read(name))
            if data is not None:
                other.writestr(name, data)
    assert pod.run("--version").out == f"dsagent-init {dsagent.__version__}\n"


def test_the_command_writes_the_same_bytes_each_time(scratch: Path) -> None:
    file = scratch / "new" / "init.pyz"
    for environment in ({"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1"}, {"TZ": "UTC", "PYTHONHASHSEED": "2"}):
        command = [sys.executable, "-P", "-m", "dsagent.entrypoints.init.zipapp", str(file)]
        subprocess.run(command, check=True, env={"PYTHONPATH": str(REPOSITORY), **environment})
        assert file.read_bytes() == build()
    assert [path.name for path in file.parent.iterdir()] == ["init.pyz"]


def test_it_says_its_version_and_its_usage(scratch: Path) -> None:
    pod = Pod(scratch / "pod")
    assert pod.run("--version").out == f"dsagent-init {dsagent.__version__}\n"
    usage = pod.run("--help").out
    for arguments in (["strat"], ["--timeout=1s"], ["run", "wait"]):
        wrong = pod.run(*arguments)
        assert (wrong.code, wrong.out, wrong.err) == (2, "", usage)


def test_a_bad_setting_is_one_sentence(scratch: Path) -> None:
    done = Pod(scratch / "pod").run()
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("dsagent-init: DSAGENT_DATASETS is not set; write for example ")
