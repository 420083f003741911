"""requirements.lock: whole, hashed, tied to no registry."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.packaging.conftest import REPOSITORY

LOCK = (REPOSITORY / "requirements.lock").read_text()
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(r for extra in PROJECT["optional-dependencies"].values() for r in extra),
]
PINS = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)


@pytest.mark.parametrize("text", [r for r in REQUIREMENTS if not r.startswith("dsagent[")])
def test_every_requirement_is_pinned(text: str) -> None:
    requirement = Requirement(text)
    versions = [version for name, version in PINS if name == requirement.name.lower()]
    assert versions
    assert all(version in requirement.specifier for version in versions)


def test_every_pin_has_hashes() -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(PINS)
    assert all("--hash=sha256:" in block for block in blocks)


def test_no_registry_is_named() -> None:
    assert "://" not in LOCK
    assert "index-url" not in LOCK
