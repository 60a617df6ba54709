"""Records of a soak, by AWS and by the run. All times are seconds since the epoch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.judge.slot_item import Item, wrong_history
from dev.scenarios.slots.slot_records import EndMessage, Execution, GlueRun

CLOSED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
RETURNED = "RequestReturned"  # the error of a workflow that returned its request to the queue


@dataclass(frozen=True)
class SentMessage:
    """A message that SQS accepted. `bad`: its defect, empty for a request."""

    process: str
    request_id: str
    message_id: str
    sequence: str
    at: float
    body: str
    bad: str = ""


@dataclass(frozen=True)
class JanitorRun:
    """`ok`: the run completed and reported no error."""

    started: float
    ended: float
    ok: bool


@dataclass(frozen=True)
class FaultMark:
    """A fault that has acted. `process` is empty if it can have affected any process. `until`: its end."""

    at: float
    kind: str
    detail: str = ""
    process: str = ""
    until: float = 0.0


@dataclass(frozen=True)
class Records:
    sent: Sequence[SentMessage]
    executions: Sequence[Execution]
    runs: Sequence[GlueRun]
    kept: Sequence[EndMessage]
    dead: Sequence[EndMessage]
    changes: Sequence[Item]
    janitor_runs: Sequence[JanitorRun]
    faults: Sequence[FaultMark]
    calm_from: float  # from this instant no fault acts, and the janitor is paused
    grace: float
    left: Mapping[str, int] = field(default_factory=dict)  # the remainder at the end, by kind

    @property
    def breaches(self) -> dict[str, list[str]]:
        """The judge's sentences on the changes, by guarantee."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for process, breach in wrong_history(self.changes):
            found[breach.guarantee].append(f"{process}: {breach.text}")
        return found


def read_executions(stepfunctions: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, ordered by start, without their states."""
    executions = []
    for page in stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for listed in page["executions"]:
            description = stepfunctions.describe_execution(executionArn=listed["executionArn"])
            request, stopped = json.loads(description["input"]), description.get("stopDate")
            executions.append(
                Execution(
                    name=description["name"],
                    request_id=request["request_id"],
                    attempt=request["attempt"],
                    status=description["status"],
                    started=description["startDate"].timestamp(),
                    stopped=stopped.timestamp() if stopped else None,
                    error=description.get("error"),
                    redrives=description.get("redriveCount", 0),
                )
            )
    return sorted(executions, key=lambda execution: execution.started)
