"""Executions of the workflow: started without ever starting one twice, and looked up when they are over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slotkeeper.slots.request import Request

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType

# Refusals by which Step Functions says that nothing was started (API Reference, StartExecution, Errors).
_REJECTED_CODES = {"InvalidExecutionInput", "InvalidName"}
_UNAVAILABLE_CODES = {
    "AccessDeniedException",
    "ExecutionLimitExceeded",
    "InvalidArn",
    "KmsAccessDeniedException",
    "KmsInvalidStateException",
    "StateMachineDeleting",
    "StateMachineDoesNotExist",
}

# The errors with which the workflow's own Fail states end it after the request was kept or given back.
ACCOUNTED_FOR = {"RequestFailed", "RequestReturned"}


@dataclass(frozen=True)
class Started:
    """The execution runs: started now, or by an earlier call with the same name and input."""


@dataclass(frozen=True)
class AlreadyRan:
    """An execution of this name has closed, within the 90 days that Step Functions remembers names."""


@dataclass(frozen=True)
class NameTaken:
    """Nothing was started: an execution of this name was started with another input, within the same 90 days."""

    is_open: bool


@dataclass(frozen=True)
class StartRejected:
    """Nothing was started, because of what the request holds: it never can be."""

    reason: str


@dataclass(frozen=True)
class StartUnavailable:
    """Nothing was started, because of a permission, a limit or a missing state machine: it can be, later."""

    reason: str


StartOutcome = Started | AlreadyRan | NameTaken | StartRejected | StartUnavailable


@dataclass(frozen=True)
class Execution:
    """An execution as Step Functions tells it. Times: seconds since the epoch; `stopped_at` is None while it runs."""

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
    def closing(self) -> str:
        """The key of this end of the execution in SettledTable. A redriven execution ends again, under the same name.

        No execution name contains "#" (Step Functions API Reference, StartExecution, `name`).
        """
        return closing(self.name, self.redrives)

    @property
    def is_closed(self) -> bool:
        # A redrive is about to run it again: closed only when it says so.
        return self.status in ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")


def closing(name: str, redrives: int) -> str:
    """See Execution.closing."""
    return f"{name}#{redrives}" if redrives else name


class Workflow:
    """The state machine that runs a request's Glue job."""

    def __init__(self, stepfunctions: SFNClient, state_machine_arn: str) -> None:
        self._stepfunctions = stepfunctions
        self._state_machine_arn = state_machine_arn

    def start(self, request: Request) -> StartOutcome:
        """Starts the request's execution, if it does not run already.

        Raises:
            ClientError, BotoCoreError: the answer was lost or says nothing certain (a time-out, a throttle, a 5xx). The
                execution may have started: who calls must keep the slot and the message.
        """
        try:
            self._stepfunctions.start_execution(
                stateMachineArn=self._state_machine_arn, name=request.execution_name, input=request.to_json()
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            reason = f"{code}: {error.response['Error'].get('Message', '')}"
            if code == "ExecutionAlreadyExists" and (outcome := self._who_has_the_name_of(request)):
                return outcome
            # A refusal that came after a lost answer of the same call does not say what became of the first attempt.
            if error.response["ResponseMetadata"].get("RetryAttempts", 0):
                raise
            if code in _REJECTED_CODES:
                return StartRejected(reason)
            if code in _UNAVAILABLE_CODES:
                return StartUnavailable(reason)
            raise
        return Started()

    def _who_has_the_name_of(self, request: Request) -> Started | AlreadyRan | NameTaken | None:
        """What ExecutionAlreadyExists means: the request's own execution has closed, or another input has its name.

        An open execution answers the same name and input with success, a closed one refuses any input (API Reference,
        StartExecution). DescribeExecution may lag: its status is believed only where the input does not decide. None if
        it does not know the execution yet.
        """
        execution = self.describe(request.execution_name)
        if execution is None:
            return None
        if execution.input == request.to_json():
            return AlreadyRan()
        if json.loads(execution.input) != json.loads(request.to_json()):
            return NameTaken(is_open=not execution.is_closed)
        # The same request, written by another version of this code.
        return AlreadyRan() if execution.is_closed else Started()

    def describe(self, name: str) -> Execution | None:
        """The execution of this name; None if Step Functions knows none (a name is forgotten 90 days after its end)."""
        try:
            response = self._stepfunctions.describe_execution(executionArn=self._execution_arn(name))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        stopped = response.get("stopDate")
        return Execution(
            name=name,
            status=response["status"],
            stopped_at=stopped.timestamp() if stopped else None,
            input=response.get("input", ""),
            error=response.get("error", ""),
            cause=response.get("cause", ""),
            arn=response["executionArn"],
            started_at=response["startDate"].timestamp(),
            redrives=response.get("redriveCount", 0),
        )

    def running(self) -> Iterator[str]:
        """The names of the executions that run, as far as an eventually consistent list knows them."""
        return (listed.name for listed in self._list("RUNNING"))

    def unsuccessful(self, stopped_after: float) -> Iterator[Execution]:
        """The executions that closed without success after a moment (seconds since the epoch), without their inputs."""
        return self._closed(("FAILED", "TIMED_OUT", "ABORTED"), stopped_after)

    def since(self, moment: float) -> Iterator[Execution]:
        """The executions that run, and those that closed after a moment (seconds since the epoch), without inputs."""
        yield from self._list("RUNNING")
        yield from self._closed(("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"), moment)

    def _closed(self, statuses: tuple[ExecutionStatusType, ...], stopped_after: float) -> Iterator[Execution]:
        for status in statuses:
            # The last that ended comes first (Step Functions API Reference, ListExecutions). Where it began says
            # nothing: one that was redriven began before others that ended long ago.
            for listed in self._list(status):
                if listed.stopped_at is not None and listed.stopped_at < stopped_after:
                    break
                yield listed

    def _list(self, status: ExecutionStatusType) -> Iterator[Execution]:
        pages = self._stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=self._state_machine_arn, statusFilter=status, PaginationConfig={"PageSize": 1000}
        )
        for page in pages:
            for listed in page["executions"]:
                stopped = listed.get("stopDate")
                yield Execution(
                    name=listed["name"],
                    status=listed["status"],
                    stopped_at=stopped.timestamp() if stopped else None,
                    started_at=listed["startDate"].timestamp(),
                    redrives=listed.get("redriveCount", 0),
                )

    def _execution_arn(self, name: str) -> str:
        return f"{self._state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
