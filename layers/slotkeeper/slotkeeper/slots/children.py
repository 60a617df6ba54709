"""Child executions: the executions of state machines that run in slots. Describes, stops and lists them.

A child has the name of the workflow execution that started it. Its input contains that execution's ARN in the field
AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID. An execution of the same name without that ARN is not a child: it counts as
absent, and is never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.targets import execution_arn

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType

# Step Functions guide, "Start a new AWS Step Functions state machine from a running execution".
PARENT_FIELD = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"


@dataclass(frozen=True)
class Child:
    """An execution with the name of a workflow execution.

    Attributes:
        stopped_at: epoch seconds; None while it runs.
        is_ours: whether that workflow execution started it.
        redrives: how often it was redriven.
        output: JSON, if it has succeeded. Empty if Step Functions does not return it.
    """

    arn: str
    status: ExecutionStatusType
    stopped_at: float | None
    is_ours: bool
    redrives: int = 0
    output: str = field(default="", repr=False)

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED_STATUSES

    @property
    def has_succeeded(self) -> bool:
        return self.is_ours and self.status == "SUCCEEDED"

    def settles_at(self, settle_seconds: int) -> float:
        """From when on its slot may be freed, epoch seconds: what an aborted child has started may outlive it."""
        if self.status in ("ABORTED", "TIMED_OUT"):
            return (self.stopped_at or 0) + settle_seconds
        return self.stopped_at or 0


class Children:
    """The child executions of any state machine. Errors of Step Functions pass through as ClientError."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def describe(self, target: str, name: str, parent_arn: str) -> Child | None:
        """Describe the execution of this name; None if Step Functions knows none.

        DescribeExecution is eventually consistent, so None does not prove that a start is not in flight.

        Args:
            target: the state machine's ARN.
            parent_arn: the workflow execution's ARN.

        Raises:
            RecursionError, ValueError: the input cannot be parsed, so that it is unknown who started the execution.
        """
        arn = execution_arn(target, name)
        try:
            answer = self._stepfunctions.describe_execution(executionArn=arn)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        given = json.loads(answer.get("input") or "null")
        stopped = answer.get("stopDate")
        return Child(
            arn=arn,
            status=answer["status"],
            stopped_at=stopped.timestamp() if stopped else None,
            is_ours=isinstance(given, dict) and given.get(PARENT_FIELD) == parent_arn,
            redrives=answer.get("redriveCount", 0),
            output=answer.get("output", ""),
        )

    def stop(self, target: str, name: str) -> None:
        """Request that Step Functions aborts a child that was described as running."""
        self._stepfunctions.stop_execution(
            executionArn=execution_arn(target, name),
            error="WorkflowEnded",
            cause="Slotkeeper's workflow that started this execution has ended, so it must not use the slot any longer",
        )

    def redriven(self, target: str) -> Iterator[str | None]:
        """List the names of the running executions that were redriven, and None after each page of running ones.

        The list is eventually consistent. It can be continued for a day (Step Functions API Reference, ListExecutions,
        nextToken).
        """
        pages = self._stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=target,
            statusFilter="RUNNING",
            PaginationConfig={"PageSize": 1000},
        )
        for page in pages:
            # A filter by redrives is for Map Runs (Step Functions API Reference, ListExecutions, redriveFilter).
            yield from (each["name"] for each in page["executions"] if each.get("redriveCount", 0) > 0)
            yield None
