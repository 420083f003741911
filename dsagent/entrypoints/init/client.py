"""Asks the agent, over its socket or https. Connections are kept; what can pass by itself is Lost."""

import json

from dsagent.contract import ENV_TOKEN_FILE
from dsagent.entrypoints.init.answers import Problem, Task, one_line, read_problem, read_task
from dsagent.entrypoints.init.connections import connection_to, odd_answer, unreachable
from dsagent.entrypoints.init.exchange import Answer, NotUnderstoodError
from dsagent.entrypoints.init.failure import Failure, Lost
from dsagent.entrypoints.init.settings import Settings, bad_setting

ANSWER_SECONDS = 30.0  # the agent answers a PUT before it brings anything
GRACE_SECONDS = 5.0  # an answer that comes a little late is still better than none
# Overloaded, recovering, draining, or a proxy that does not reach it.
_COME_AGAIN = (429, 502, 503, 504)


class Agent:
    """The node's agent. Methods raise Lost if it does not answer now, and Failure if it refuses."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.agent
        self._token_file = settings.token_file
        self._connection = connection_to(settings.agent, settings.ca_file)
        self._path = f"/v1/tasks/{settings.pod.uid}"
        owner = {"namespace": settings.pod.namespace, "name": settings.pod.name, "uid": settings.pod.uid}
        datasets = [wanted.document() for wanted in settings.datasets]
        request = {"owner": owner, "datasets": datasets, "on_failure": settings.on_failure}
        self._request = json.dumps(request).encode()

    def put(self, left: float) -> Task:
        """Asks for the task: begins it, or finds it. `left`: the seconds until nobody needs the answer any more."""
        answer = self._ask("PUT", self._path, self._request, min(ANSWER_SECONDS, left + GRACE_SECONDS))
        if answer.status != 200:
            raise self._refusal(answer)
        return self._task(answer)

    def get(self, wait: float, left: float) -> Task | None:
        """The task once its state has changed, or after `wait` seconds; None if the agent has none."""
        path = f"{self._path}?wait={wait:.3f}"
        answer = self._ask("GET", path, b"", min(wait + ANSWER_SECONDS, left + GRACE_SECONDS))
        if answer.status == 404 and read_problem(answer.body):
            return None
        if answer.status != 200:
            raise self._refusal(answer)
        return self._task(answer)

    def _task(self, answer: Answer) -> Task:
        try:
            return read_task(answer.body)
        except ValueError as error:
            raise odd_answer(self._address, f"what it sent is no task ({one_line(str(error))})") from error

    def _ask(self, method: str, path: str, body: bytes, seconds: float) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": "dsagent-init"}
        if body:
            headers["Content-Type"] = "application/json"
        if self._token_file:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        try:
            answer = self._connection.ask(method, path, headers, body, seconds)
        except NotUnderstoodError as error:
            raise odd_answer(self._address, str(error)) from error
        except OSError as error:
            raise unreachable(error, self._address, seconds) from error
        if answer.status >= 400:
            _come_again(answer)
        return answer

    def _refusal(self, answer: Answer) -> Failure:
        problem = read_problem(answer.body)
        if problem is None:
            return odd_answer(self._address, f"it answered {answer.status}")
        return Failure(problem.exit_code, f"the agent refuses the request: {_advised(answer.status, problem)}")


def _come_again(answer: Answer) -> None:
    """Raises Lost if the answer may be another one later."""
    problem = read_problem(answer.body)
    # A 500 that says nothing is a server's whose end cut an answer short.
    if answer.status in _COME_AGAIN or (answer.status >= 500 and problem is None):
        after = answer.headers.get("retry-after", "")
        seconds = float(after) if after.isdecimal() and len(after) < 6 else 0.0
        raise Lost(problem.detail if problem else f"it answered {answer.status}", seconds)


def _advised(status: int, problem: Problem) -> str:
    if status == 409:
        return f"{problem.detail} (all init containers of a pod have to ask for the same datasets)"
    return problem.detail


def _token(file: str) -> str:
    """The token, read anew each time: a projected one is replaced before it expires."""
    try:
        with open(file, encoding="ascii") as stream:
            token = stream.read().strip()
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no text"
        raise bad_setting(ENV_TOKEN_FILE, f"names {file}, which cannot be read: {cause}", "mount the token") from None
    if not token or not token.isprintable() or " " in token:
        raise bad_setting(ENV_TOKEN_FILE, f"names {file}, which holds no token", "mount the token")
    return token
