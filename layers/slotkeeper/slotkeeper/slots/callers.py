"""Callers: tasks of other workflows that wait for the end of their request, and the answers that functions give them.

The workflow answers the caller of its own request. Endings answers those whose request has ended without a start, the
janitor those whose workflow has closed without an answer (CallerAnswers). The request's row contains the caller's
token. Step Functions accepts one answer for each task token; a later one is spent.

No task token is logged: an error is logged by its code, since its message may repeat the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.observability import logger
from slotkeeper.slots.executions import ANSWER_FAILED, Execution, Workflow, failure_reason
from slotkeeper.slots.run_report import RunReport, is_denied

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from slotkeeper.slots.work import Children, Work

# The caller has ended, has timed out or has an answer, or the token was never valid (Step Functions API Reference,
# SendTaskSuccess, Errors). No later attempt can succeed.
_SPENT = ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken")
MAX_ERROR_CHARACTERS = 256
MAX_CAUSE_CHARACTERS = 8000


@dataclass(frozen=True)
class Unanswered:
    """A request that is accounted for, and whose caller is not answered yet.

    Attributes:
        target: what ran in its slot; "" if that is unknown.
        glue_run_id: the Glue run that has succeeded; "" for another target.
    """

    has_succeeded: bool
    target: str = ""
    glue_run_id: str = ""


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


# As in the workflow's state RunStateMachine, which measures the output with its characters escaped.
MAX_OUTPUT_CHARACTERS = 204_800


@dataclass(frozen=True)
class CallerAnswers:
    """Answers the callers of closed executions. No method raises an error of AWS.

    Args:
        token_of: returns the task token in the row of an execution; "" without one.
    """

    callers: Callers
    workflow: Workflow
    children: Children
    token_of: Callable[[str], str]

    def answer_closed(self, execution: Execution, due: Unanswered, child: Work | None, report: RunReport) -> bool:
        """Answer the caller; False if it must be tried again.

        Args:
            child: the execution's child, if it was described. Of a Glue run, `due` has what the answer needs.
        """
        try:
            given = self._give(execution, due, child)
        except (ClientError, BotoCoreError) as error:
            given = refused(error)
        match given:
            case AnswerOutcome.SPENT:
                report.note("AnswersSpent", "A caller has ended or was answered before", execution=execution.name)
            case AnswerOutcome.NO_TOKEN:
                report.note("AnswersFailed", "A caller's token is lost; it times out", execution=execution.name)
            case AnswerOutcome.DENIED:
                report.note("AnswersFailed", "The answer to a caller is denied; it times out", execution=execution.name)
            case AnswerOutcome.FAILED:
                report.note("AnswersFailed", "Could not answer a caller; retried", execution=execution.name)
        return given is not AnswerOutcome.FAILED

    def _give(self, execution: Execution, due: Unanswered, child: Work | None) -> AnswerOutcome:
        if execution.status == "FAILED" and execution.error == ANSWER_FAILED:
            return self._repeat(self.workflow.last_events(execution.name))
        token = self.token_of(execution.name)
        if not token:
            return AnswerOutcome.NO_TOKEN
        if not due.has_succeeded:
            return self.callers.fail(token, *_failure(execution))
        if due.glue_run_id:
            return self.callers.succeed(token, _run_output(due))
        if child is None and due.target:
            child = self.children.describe(due.target, execution.name, execution.arn)
        return self.callers.succeed(token, _output(child, execution))

    def _repeat(self, events: Iterable[Mapping[str, Any]]) -> AnswerOutcome:
        """Repeat the answer that the workflow could not give: the parameters of its newest attempt."""
        for event in events:
            answer = _json(event.get("taskScheduledEventDetails", {}).get("parameters", ""))
            if "TaskToken" in answer and "Output" in answer:
                return self.callers.succeed(answer["TaskToken"], answer["Output"])
            if "TaskToken" in answer and "Error" in answer:
                return self.callers.fail(answer["TaskToken"], answer["Error"], answer.get("Cause", ""))
        return AnswerOutcome.NO_TOKEN


def has_caller(execution_input: str) -> bool:
    """Whether a request has a caller that waits for the answer. A manually started execution may have any input."""
    return bool(_json(execution_input).get("caller"))


def _failure(execution: Execution) -> tuple[str, str]:
    error = execution.error or execution.status
    return error, failure_reason(execution.cause) or f"The workflow ended with status {execution.status}"


def _run_output(due: Unanswered) -> str:
    """As the workflow's states RunGlueJob and ReadGlueRun answer."""
    return json.dumps({"Id": due.glue_run_id, "JobName": due.target, "JobRunState": "SUCCEEDED"})


def _output(child: Work | None, execution: Execution) -> str:
    output = child.output if child else ""
    if output and len(quote(output, safe="-_.!~*'()")) <= MAX_OUTPUT_CHARACTERS:
        return output
    return json.dumps({"ExecutionArn": child.id if child else execution.arn})


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
