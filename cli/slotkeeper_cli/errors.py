"""The exceptions that end a command: one for each exit code, and those of failed calls."""

from typing import ClassVar

from botocore.exceptions import BotoCoreError, ClientError


class CommandError(Exception):
    """A message for the operator: the problem, the expected value, the remedy.

    Args:
        sentences: each is printed on its own line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


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


class NeedsYes(CommandError):
    """The command asks a question, and there is no terminal on which to answer. Nothing was changed.

    The console in the browser asks the question in its place. `why` is the last line that the command prints.
    """

    exit_code = 6
    why: ClassVar[str] = "There is no terminal on which to answer: give --yes to confirm. Nothing was changed."


def is_failure(error: Exception) -> bool:
    """Whether an error is an answer for the operator, not a defect: of a command, of AWS, or of the layer, which does
    not accept what it has read."""
    # The classes of the layer are not named, since it takes half a second to import them all.
    is_of_layer = type(error).__module__.startswith("slotkeeper.")
    return isinstance(error, CommandError | ClientError | BotoCoreError) or is_of_layer


def failure_text(error: Exception) -> str:
    """Describe a failed call: the operation, the error code, the message, and what to do if that is known."""
    if not isinstance(error, ClientError):
        hints = {"NoCredentialsError": "sign in, or give --profile", "NoRegionError": "give --region"}
        hint = hints.get(type(error).__name__, "")
        return f"{error}".rstrip(".") + (f": {hint}" if hint else "")
    response = error.response["Error"]
    text = f"{error.operation_name} failed with {response.get('Code', '?')}: {response.get('Message', '')}"
    if "AccessDenied" in response.get("Code", ""):
        text += " (the permissions of each command: docs/permissions.md)"
    return text
