"""AWS's records of requests: executions and their histories, Glue job runs, the two end queues, the slot table.

All times are seconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dev.emulator.queue_reading import attributes, drain
from slotkeeper.slots.failure_reason import failure_reason
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority

MARKER = "--slotkeeper-execution"  # the Glue argument with the name of the run's workflow


@dataclass(frozen=True)
class Execution:
    """One workflow. `states`: the first entry and the last exit of each state that it entered."""

    name: str
    request_id: str
    attempt: int
    status: str
    started: float
    stopped: float | None
    states: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    error: str | None = None
    cause: str | None = None
    redrives: int = 0
    priority: Priority = DEFAULT_PRIORITY
    weight: int = 1

    @property
    def process(self) -> str:
        return self.name.rsplit("-", 1)[0]

    def entered(self, state: str) -> float | None:
        return self.states[state][0] if state in self.states else None

    def exited(self, state: str) -> float | None:
        return self.states[state][1] if state in self.states else None


@dataclass(frozen=True)
class GlueRun:
    """One Glue job run. `completed` is None while it is alive."""

    run_id: str
    execution: str | None
    state: str
    started: float
    completed: float | None
    message: str = ""


@dataclass(frozen=True)
class EndMessage:
    """A message of FailedRequestQueue or of the dead-letter queue. `source`: the id of the dead-lettered message."""

    request_id: str | None
    execution: str | None
    error: str | None
    cause: str | None
    body: str
    source: str | None = None
    at: float = 0.0

    @property
    def reason(self) -> str | None:
        """The cause in one sentence: for a failed Glue run, Glue's own message."""
        return self.cause and failure_reason(self.cause)


@dataclass(frozen=True)
class Records:
    executions: list[Execution]
    glue_runs: list[GlueRun]
    kept: list[EndMessage]
    dead: list[EndMessage]
    still_queued: int
    slots_in_use: int
    holders: list[str]
    outputs: frozenset[str] = field(default_factory=frozenset)  # keys of the results in the data bucket


def _seconds(value: datetime | None) -> float | None:
    return value.timestamp() if value is not None else None


def parse_history(summary: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Execution:
    """One execution from its ListExecutions entry and its GetExecutionHistory events, oldest first."""
    states: dict[str, tuple[float, float | None]] = {}
    request: dict[str, Any] = {}
    error = cause = None
    for event in events:
        kind, at = event["type"], event["timestamp"].timestamp()
        if kind == "ExecutionStarted":
            request = json.loads(event["executionStartedEventDetails"].get("input") or "{}")
        elif kind.endswith("StateEntered"):
            states.setdefault(event["stateEnteredEventDetails"]["name"], (at, None))
        elif kind.endswith("StateExited"):
            name = event["stateExitedEventDetails"]["name"]
            states[name] = (states[name][0], at)
        elif kind in ("ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"):
            details = event.get(kind[0].lower() + kind[1:] + "EventDetails", {})
            error, cause = details.get("error"), details.get("cause")
    return Execution(
        name=summary["name"],
        request_id=str(request.get("request_id", "")),
        attempt=int(request.get("attempt", 1)),
        status=summary["status"],
        started=summary["startDate"].timestamp(),
        stopped=_seconds(summary.get("stopDate")),
        states=states,
        error=error,
        cause=cause,
        priority=request.get("priority", DEFAULT_PRIORITY),
        weight=int(request.get("weight", 1)),
    )


def read_executions(sfn: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, ordered by start."""
    executions: list[Execution] = []
    for page in sfn.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for summary in page["executions"]:
            history = sfn.get_paginator("get_execution_history").paginate(executionArn=summary["executionArn"])
            executions.append(parse_history(summary, (event for part in history for event in part["events"])))
    return sorted(executions, key=lambda execution: execution.started)


def read_glue_runs(glue: Any, job_name: str) -> list[GlueRun]:
    """All runs of the job, ordered by start."""
    runs = [
        GlueRun(
            run_id=run["Id"],
            execution=run.get("Arguments", {}).get(MARKER),
            state=run["JobRunState"],
            started=run["StartedOn"].timestamp(),
            completed=_seconds(run.get("CompletedOn")),
            message=run.get("ErrorMessage") or "",
        )
        for page in glue.get_paginator("get_job_runs").paginate(JobName=job_name)
        for run in page["JobRuns"]
    ]
    return sorted(runs, key=lambda run: run.started)


def _first(*sources: Any) -> str | None:
    return next((str(value) for value in sources if value), None)


def parse_end_message(message: dict[str, Any]) -> EndMessage:
    """Error and cause are in the body next to the request, or in attributes. A dead-letter message may be any text."""
    texts = attributes(message)
    try:
        body = json.loads(message["Body"])
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    request = body["request"] if isinstance(body.get("request"), dict) else body
    return EndMessage(
        request_id=_first(request.get("request_id"), texts.get("request_id")),
        execution=_first(texts.get("execution_name"), texts.get("execution")),
        error=_first(body.get("error"), texts.get("error"), texts.get("code")),
        cause=_first(body.get("cause"), texts.get("cause"), texts.get("reason")),
        body=message["Body"],
        source=texts.get("source_message_id"),
        at=int(message.get("Attributes", {}).get("SentTimestamp", 0)) / 1000,
    )


def read_end_messages(sqs: Any, queue_url: str) -> list[EndMessage]:
    """Every message of the queue, which is empty afterwards."""
    return [parse_end_message(message) for message in drain(sqs, queue_url)]


def read_slots(dynamodb: Any, table: str, process: str) -> tuple[int, list[str]]:
    """slots_in_use and the holders' names of the process, by a consistent read. Raises LookupError without an item."""
    item = dynamodb.get_item(TableName=table, Key={"process_name": {"S": process}}, ConsistentRead=True).get("Item")
    if item is None:
        raise LookupError(f"table {table} has no item for process {process}: the deployment should have created it")
    return int(item["slots_in_use"]["N"]), sorted(item["holders"]["M"])


def read_outputs(s3: Any, bucket: str, prefix: str) -> frozenset[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return frozenset(entry["Key"] for page in pages for entry in page.get("Contents", []))
