"""What keeps the client from its end."""


class Failure(Exception):
    """There will be no data: a sentence for the user, and the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lost(Exception):
    """The agent does not answer now. `after`: the seconds that it asked to be left alone, 0 if it said nothing."""

    def __init__(self, cause: str, after: float = 0.0) -> None:
        super().__init__(cause)
        self.after = after
