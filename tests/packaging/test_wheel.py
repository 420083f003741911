"""The wheel as a user has it: scripts, imports, types."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import dsagent
from tests.packaging.conftest import REPOSITORY, Environment

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRA_OF_SCRIPT = {
    "dsagent": "agent",
    "kubectl-dataset": "kubernetes",
    "scheduler-plugin": "scheduler",
}
USER = """\
import dsagent

with dsagent.cache("/data/imagenet", name="imagenet") as dataset:
    version: str = dataset.version
    print(dataset.path, version, dataset.files)
"""


def test_wheel_holds_the_three_packages_with_their_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"dsagent/py.typed", "scheduler_plugin/py.typed", "gpu_topology/py.typed"} <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"dsagent", "scheduler_plugin", "gpu_topology", f"dsagent-{dsagent.__version__}.dist-info"}


@pytest.mark.parametrize("script", PROJECT["scripts"])
def test_every_script_says_its_version(environment: Environment, script: str) -> None:
    done = environment.run(script, "--version")
    assert (done.returncode, done.stdout.split()) == (0, [script, dsagent.__version__]), done.stderr


@pytest.mark.parametrize(("script", "extra"), EXTRA_OF_SCRIPT.items())
def test_script_without_its_extra_names_the_pip_command(environment: Environment, script: str, extra: str) -> None:
    done = environment.run(script)
    if environment.extras and script == "dsagent":
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: dsagent" in done.stderr
    elif environment.extras and script == "kubectl-dataset":
        assert "pip install" not in done.stderr
    elif environment.extras:
        assert done.returncode == 2
        assert "usage: scheduler-plugin" in done.stdout + done.stderr
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert f"pip install 'dsagent[{extra}]'" in done.stderr


def test_gpu_topology_needs_no_extra(environment: Environment) -> None:
    done = environment.run("gpu-topology", "show", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= {"gpus", "nics", "matrix", "classes"}


@pytest.mark.parametrize("part", ["webhook", "controller"])
def test_parts_of_a_cluster_without_their_extra_name_the_pip_command(environment: Environment, part: str) -> None:
    done = environment.run("dsagent", part)
    assert done.returncode == 2
    assert ("pip install 'dsagent[control]'" in done.stderr) == (not environment.extras), done.stderr


@pytest.mark.parametrize("package", ["dsagent", "scheduler_plugin", "gpu_topology"])
def test_packages_import(environment: Environment, package: str) -> None:
    subprocess.run([environment.python, "-I", "-c", f"import {package}"], check=True, cwd="/")


def test_dsctl_packs_and_caches_local_sources(environment: Environment, tmp_path: Path) -> None:
    source, store, root = tmp_path / "source", tmp_path / "store", tmp_path / "root"
    source.mkdir()
    (source / "file").write_text("content")
    packed = environment.run("dsctl", "pack", str(source), str(store), "--name", "tiny")
    assert packed.returncode == 0, packed.stderr
    cached = environment.run("dsctl", "--root", str(root), "cache", str(store))
    assert cached.returncode == 0, cached.stderr
    path = environment.run("dsctl", "--root", str(root), "path", "tiny").stdout.strip()
    assert (Path(path) / "file").read_text() == "content"


def _mypy(environment: Environment, text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "user.py").write_text(text)
    checker = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={environment.python.parent / 'mypy'}"]
    check = [*checker, f"--python-executable={environment.python}", "user.py"]
    return subprocess.run(check, check=False, capture_output=True, text=True, cwd=directory)


def test_a_user_of_the_library_type_checks(environment: Environment, tmp_path: Path) -> None:
    done = _mypy(environment, USER, tmp_path)
    assert done.returncode == 0, done.stdout


def test_a_wrong_use_of_the_library_does_not_type_check(environment: Environment, tmp_path: Path) -> None:
    done = _mypy(environment, USER.replace("version: str", "version: int"), tmp_path)
    assert done.returncode == 1
    assert "user.py:4: error: Incompatible types in assignment" in done.stdout
