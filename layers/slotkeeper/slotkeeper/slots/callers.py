"""Callers: tasks of other workflows that wait for the end of their request, and the answers that functions give them.

The workflow answers the caller of its own request. The starter answers when it dead-letters a request, the janitor when
the workflow has ended without an answer (caller_answers.py). Step Functions accepts one answer for each task token; a
later one is spent.

No task token is logged: an error is logged by its code, since its message may repeat the token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.observability import logger
from slotkeeper.slots.run_report import is_denied

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

# The caller has ended, has timed out or has an answer, or the token was never valid (Step Functions API Reference,
# SendTaskSuccess, Errors). No later attempt can succeed.
_SPENT = ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken")
MAX_ERROR_CHARACTERS = 256
MAX_CAUSE_CHARACTERS = 8000


class AnswerOutcome(Enum):
    """The result of answering a caller."""

    GIVEN = auto()
    SPENT = auto()
    FAILED = auto()
    DENIED = auto()  # by a role or a key, so that no repetition succeeds
    NO_TOKEN = auto()


class Callers:
    """Answers callers. No method raises an error of AWS."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def succeed(self, token: str, output: str) -> AnswerOutcome:
        """Answer that the request has succeeded. `output`: JSON."""
        try:
            self._stepfunctions.send_task_success(taskToken=token, output=output)
        except (ClientError, BotoCoreError) as error:
            return refused(error)
        return AnswerOutcome.GIVEN

    def fail(self, token: str, error: str, cause: str) -> AnswerOutcome:
        """Answer that the request has failed, or was not run."""
        error, cause = error[:MAX_ERROR_CHARACTERS], cause[:MAX_CAUSE_CHARACTERS]
        try:
            self._stepfunctions.send_task_failure(taskToken=token, error=error, cause=cause)
        except (ClientError, BotoCoreError) as refusal:
            return refused(refusal)
        return AnswerOutcome.GIVEN


def refused(error: Exception) -> AnswerOutcome:
    """The result of an answer that failed with this error. It is logged by its code."""
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    if code in _SPENT:
        return AnswerOutcome.SPENT
    logger.warning("Could not answer a caller", error_code=code)
    return AnswerOutcome.DENIED if is_denied(error) else AnswerOutcome.FAILED
