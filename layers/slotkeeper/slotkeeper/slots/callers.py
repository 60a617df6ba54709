"""Callers: tasks of other workflows that wait for the end of their request. endings.py alone answers them.

The request's row contains the caller's token. Step Functions accepts one answer for each task token; after it, the
token is spent. No task token is logged: an error is logged by its code, since its message may repeat the token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.observability import logger

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


class Callers:
    """Answers callers. No method raises an error of AWS."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def succeed(self, token: str, output: str) -> AnswerOutcome:
        """Answer that the request has succeeded. `output`: JSON."""
        try:
            self._stepfunctions.send_task_success(taskToken=token, output=output)
        except (ClientError, BotoCoreError) as error:
            return _refused(error)
        return AnswerOutcome.GIVEN

    def fail(self, token: str, error: str, cause: str) -> AnswerOutcome:
        """Answer that the request has failed, or was not run."""
        error, cause = error[:MAX_ERROR_CHARACTERS], cause[:MAX_CAUSE_CHARACTERS]
        try:
            self._stepfunctions.send_task_failure(taskToken=token, error=error, cause=cause)
        except (ClientError, BotoCoreError) as refusal:
            return _refused(refusal)
        return AnswerOutcome.GIVEN


def _refused(error: Exception) -> AnswerOutcome:
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    if code in _SPENT:
        return AnswerOutcome.SPENT
    logger.warning("Could not answer a caller", error_code=code)
    return AnswerOutcome.FAILED
