"""The exceptions that end a command: one for each exit code."""

from typing import ClassVar


class CommandError(Exception):
    """A message for the operator: what is wrong, what was expected, what to do.

    Args:
        lines: each is printed on one line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class CommandFailed(CommandError):
    """A call of AWS failed, or the time to wait has passed."""


class CommandRefused(CommandError):
    """A guard refused, or the operator did not confirm. Nothing was changed."""

    exit_code = 3


class NotFound(CommandError):
    """There is no such stack, process, holder, message or request."""

    exit_code = 4


class ProblemsFound(CommandError):
    """A check ran and found a problem."""

    exit_code = 5
