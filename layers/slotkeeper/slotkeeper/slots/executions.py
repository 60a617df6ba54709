"""Executions of the workflow: describes and lists them; why one failed, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slotkeeper.slots.targets import execution_arn

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType

# A list of closed statuses, because PENDING_REDRIVE means that the execution is about to run again.
CLOSED_STATUSES = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")

# The error of the workflow's Fail state if it holds no slot, and has started no work. Its request is queued again
# (returns.py).
SLOT_LOST = "SlotLost"
# Seconds. DescribeExecution is eventually consistent and may lag behind StartExecution, but not for a day.
FORGOTTEN_AFTER = 86400

# The workflow's last state puts the error's name before the cause.
_ERROR_NAME = re.compile(r"\A[A-Za-z]+\.[A-Za-z]+: (?=\{)")
# In the run's arguments the same text is escaped, so it does not match there.
_MESSAGE = re.compile(r'"ErrorMessage"\s*:\s*("(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)("?)')
_RUN_ID = re.compile(r'"Id"\s*:\s*"(jr_\w+)"')
_CUT_BEFORE_MESSAGE = "unknown: the cause was cut before Glue's error message, since the run's arguments are long"


@dataclass(frozen=True)
class Execution:
    """An execution as Step Functions reports it. Times: epoch seconds. `stopped_at` is None while it runs."""

    name: str
    status: ExecutionStatusType
    stopped_at: float | None
    input: str = ""
    error: str = ""
    cause: str = ""
    arn: str = ""
    started_at: float | None = None
    redrives: int = 0

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED_STATUSES

    @property
    def has_lost_its_slot(self) -> bool:
        """Whether it, or its redrive, has started no work because it held no slot.

        The status must be FAILED: the caller of StopExecution can set any error on an aborted execution.
        """
        return self.status == "FAILED" and self.error == SLOT_LOST


class Workflow:
    """The state machine that runs a request's Glue job."""

    def __init__(self, stepfunctions: SFNClient, state_machine_arn: str) -> None:
        self._stepfunctions = stepfunctions
        self._state_machine_arn = state_machine_arn

    def describe(self, name: str) -> Execution | None:
        """Describe the execution of this name; None if Step Functions knows none. It keeps names for 90 days."""
        try:
            response = self._stepfunctions.describe_execution(executionArn=self.execution_arn(name))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        return _execution(response)

    def running(self) -> Iterator[str]:
        """List the names of the running executions. The list is eventually consistent."""
        return (listed.name for listed in self._list("RUNNING"))

    def unsuccessful(self, stopped_after: float) -> Iterator[Execution]:
        """List the executions that closed without success after an epoch time in seconds. They have no input."""
        statuses: tuple[ExecutionStatusType, ...] = ("FAILED", "TIMED_OUT", "ABORTED")
        for status in statuses:
            # The execution that ended last comes first (Step Functions API Reference, ListExecutions). Start times are
            # not in order: a redriven execution may have started before others that ended long ago.
            for listed in self._list(status):
                if listed.stopped_at is not None and listed.stopped_at < stopped_after:
                    break
                yield listed

    def _list(self, status: ExecutionStatusType) -> Iterator[Execution]:
        pages = self._stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=self._state_machine_arn, statusFilter=status, PaginationConfig={"PageSize": 1000}
        )
        for page in pages:
            yield from map(_execution, page["executions"])

    def execution_arn(self, name: str) -> str:
        """The ARN of the execution of this name, whether or not it exists."""
        return execution_arn(self._state_machine_arn, name)


def _execution(answer: Mapping[str, Any]) -> Execution:
    """An execution as described or listed. A list has no input, error and cause."""
    stopped = answer.get("stopDate")
    return Execution(
        name=answer["name"],
        status=answer["status"],
        stopped_at=stopped.timestamp() if stopped else None,
        input=answer.get("input", ""),
        error=answer.get("error", ""),
        cause=answer.get("cause", ""),
        arn=answer.get("executionArn", ""),
        started_at=answer["startDate"].timestamp(),
        redrives=answer.get("redriveCount", 0),
    )


def failure_reason(cause: str) -> str:
    """Why a request failed, in words: Glue's error message, if the cause is the JobRun of a run; otherwise the cause.

    Unlike the cause, a reason does not contain the run's arguments, which events must not contain.

    Step Functions returns the JobRun as JSON with its keys in alphabetical order, so the arguments of the run precede
    the message. A cause is cut after 30,000 characters. A message that was cut ends with "...".
    """
    text = _ERROR_NAME.sub("", cause)
    try:
        run = json.loads(text)
    except (ValueError, RecursionError):
        reason = _of_cut_run(text) if text.startswith("{") else ""
    else:
        reason = _of_run(run) if isinstance(run, dict) else ""
    # Half of a surrogate pair, escaped, is valid JSON, but cannot be printed.
    return reason.strip().encode(errors="replace").decode() or cause


def failed_run(cause: str) -> str:
    """The id of the Glue run, if the cause is its JobRun; otherwise empty. It is also the run's log stream."""
    found = _RUN_ID.search(cause)
    return found[1] if found else ""


def _of_run(run: dict[str, Any]) -> str:
    if message := run.get("ErrorMessage"):
        return str(message)
    if state := run.get("JobRunState"):
        return f"Glue run {run.get('Id', 'of unknown id')} ended as {state}, without an error message"
    return ""


def _of_cut_run(text: str) -> str:
    if found := _MESSAGE.search(text):
        return str(json.loads(found[1] + '"', strict=False)) + ("" if found[2] else "...")
    return _CUT_BEFORE_MESSAGE if '"Arguments"' in text else ""
