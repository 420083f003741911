"""Errors and the problems that tell of them."""

import dataclasses

import pytest

from dsagent.contract import ExitCode
from dsagent.core.errors import DsagentError, NotPermitted, SourceError, error_of

KINDS: list[type[DsagentError]] = [DsagentError, *DsagentError.__subclasses__()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_becomes_its_error_again(kind: type[DsagentError]) -> None:
    error = kind("read", "/data", "it is broken", "mend it", [b"a", b"\xff", b"new\nline"])
    again = error_of(error.problem())
    assert type(again) is kind
    assert again.problem() == error.problem()


def test_a_problem_of_another_release_keeps_its_exit_code() -> None:
    problem = dataclasses.replace(NotPermitted("ask", "it", "no").problem(), type="https://dsagent.io/problems/odd")
    assert type(error_of(problem)) is NotPermitted
    assert type(error_of(dataclasses.replace(problem, exit_code=int(ExitCode.FAILURE)))) is DsagentError
    assert type(error_of(dataclasses.replace(problem, exit_code=99))) is DsagentError


def test_types_are_distinct() -> None:
    assert len({kind.problem_type() for kind in KINDS}) == len(KINDS)
    assert SourceError.problem_type() == "https://dsagent.io/problems/source-error"
