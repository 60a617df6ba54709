"""The janitor's answers to callers: for executions that closed without answering.

The holder's entry contains the caller's token. After the workflow has released its slot, the execution's history does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.slots.callers import AnswerOutcome, Callers, refused
from slotkeeper.slots.children import Child, Children
from slotkeeper.slots.executions import ANSWER_FAILED, Execution, Workflow
from slotkeeper.slots.failure_reason import failure_reason
from slotkeeper.slots.glue import GlueRun
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement_table import Unanswered

# As in the workflow's state RunStateMachine, which measures the output with its characters escaped.
MAX_OUTPUT_CHARACTERS = 204_800


@dataclass(frozen=True)
class CallerAnswers:
    """Answers the callers of closed executions. No method raises an error of AWS."""

    callers: Callers
    workflow: Workflow
    children: Children

    def answer(self, execution: Execution, due: Unanswered, work: Child | GlueRun | None, report: RunReport) -> bool:
        """Answer the caller; False if it must be tried again.

        Args:
            work: the execution's child, if it was described. Of a Glue run, `due` has what the answer needs.
        """
        try:
            given = self._give(execution, due, work if isinstance(work, Child) else None)
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

    def _give(self, execution: Execution, due: Unanswered, child: Child | None) -> AnswerOutcome:
        if execution.status == "FAILED" and execution.error == ANSWER_FAILED:
            return self._repeat(self.workflow.events(execution.name, newest_first=True))
        token = due.task_token or _token_in(self.workflow.events(execution.name))
        if not token:
            return AnswerOutcome.NO_TOKEN
        if not due.has_succeeded:
            return self.callers.fail(token, *_failure(execution))
        if due.glue_run_id:
            return self.callers.succeed(token, _run_output(due))
        if child is None:
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


def _token_in(events: Iterable[Mapping[str, Any]]) -> str:
    """The token that the workflow's state ReadToken has read."""
    for event in events:
        read = _json(event.get("taskSucceededEventDetails", {}).get("output", ""))
        try:
            (holder,) = read["Item"]["holders"]["M"].values()
            return str(holder["M"]["task_token"]["S"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return ""


def _failure(execution: Execution) -> tuple[str, str]:
    error = execution.error or execution.status
    return error, failure_reason(execution.cause) or f"The workflow ended with status {execution.status}"


def _run_output(due: Unanswered) -> str:
    """As the workflow's states RunGlueJob and ReadGlueRun answer."""
    return json.dumps({"Id": due.glue_run_id, "JobName": due.target, "JobRunState": "SUCCEEDED"})


def _output(child: Child | None, execution: Execution) -> str:
    output = child.output if child else ""
    if output and len(quote(output, safe="-_.!~*'()")) <= MAX_OUTPUT_CHARACTERS:
        return output
    return json.dumps({"ExecutionArn": child.arn if child else execution.arn})


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
