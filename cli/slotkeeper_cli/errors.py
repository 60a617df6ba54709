"""How a command ends when it does not do what it was asked for; scripts can tell by the exit code."""

from typing import ClassVar


class CommandError(Exception):
    """A line for the person who called: what was wrong, what was expected, what to do."""

    exit_code: ClassVar[int] = 1


class Failed(CommandError):
    """A call of AWS failed, or what was waited for did not come."""


class Refused(CommandError):
    """A guard said no, or nobody confirmed. Nothing was changed."""

    exit_code = 3


class NotFound(CommandError):
    """There is no such stack, process, holder, message or request."""

    exit_code = 4


class ProblemsFound(CommandError):
    """A check did its work, and found something that somebody should mend."""

    exit_code = 5
