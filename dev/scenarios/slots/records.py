"""What AWS wrote down about the run: Step Functions' executions and histories, Glue's job runs, the two end queues.

The functions here only read and translate; `report` judges. All times are seconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

MARKER = "--slotkeeper-execution"  # the Glue argument by which a run names its workflow


@dataclass(frozen=True)
class Execution:
    """One workflow. The instants inside are None where the workflow never came there."""

    name: str
    request_id: str
    attempt: int
    status: str
    started: float
    stopped: float | None
    glue_entered: float | None = None
    glue_exited: float | None = None
    release_entered: float | None = None
    release_exited: float | None = None
    error: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class GlueRun:
    """One Glue job run. `completed` is None while it lives."""

    run_id: str
    execution: str | None
    state: str
    started: float
    completed: float | None
    message: str = ""


@dataclass(frozen=True)
class EndMessage:
    """A message of FailedRequestQueue or of the dead-letter queue."""

    request_id: str | None
    execution: str | None
    error: str | None
    cause: str | None
    body: str

    @property
    def reason(self) -> str | None:
        """The cause in one sentence: of a failed Glue job, Step Functions gives the whole JobRun as JSON."""
        try:
            run = json.loads(self.cause or "")
        except ValueError:
            return self.cause
        return (run.get("ErrorMessage") or self.cause) if isinstance(run, dict) else self.cause


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
    """One execution from its ListExecutions entry and its GetExecutionHistory events, oldest first.

    A state that is entered twice (a retry inside a state is not) counts from its first entry to its last exit.
    """
    entered: dict[str, float] = {}
    exited: dict[str, float] = {}
    request: dict[str, Any] = {}
    error = cause = None
    for event in events:
        kind, at = event["type"], event["timestamp"].timestamp()
        if kind == "ExecutionStarted":
            request = json.loads(event["executionStartedEventDetails"].get("input") or "{}")
        elif kind.endswith("StateEntered"):
            entered.setdefault(event["stateEnteredEventDetails"]["name"], at)
        elif kind.endswith("StateExited"):
            exited[event["stateExitedEventDetails"]["name"]] = at
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
        glue_entered=entered.get("RunGlueJob"),
        glue_exited=exited.get("RunGlueJob"),
        release_entered=entered.get("ReleaseSlot"),
        release_exited=exited.get("ReleaseSlot"),
        error=error,
        cause=cause,
    )


def read_executions(sfn: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, by their start."""
    found: list[Execution] = []
    for page in sfn.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for summary in page["executions"]:
            history = sfn.get_paginator("get_execution_history").paginate(executionArn=summary["executionArn"])
            found.append(parse_history(summary, (event for part in history for event in part["events"])))
    return sorted(found, key=lambda execution: execution.started)


def read_glue_runs(glue: Any, job_name: str) -> list[GlueRun]:
    """All runs of the job, by their start."""
    found = [
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
    return sorted(found, key=lambda run: run.started)


def _first(*sources: Any) -> str | None:
    return next((str(value) for value in sources if value), None)


def parse_end_message(message: Mapping[str, Any]) -> EndMessage:
    """Error and cause stand in the body beside the request, or in message attributes; a dead letter may be any text."""
    attributes = {name: value.get("StringValue") for name, value in message.get("MessageAttributes", {}).items()}
    try:
        body = json.loads(message["Body"])
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    request = body["request"] if isinstance(body.get("request"), dict) else body
    return EndMessage(
        request_id=_first(request.get("request_id"), attributes.get("request_id")),
        execution=_first(attributes.get("execution_name"), attributes.get("execution")),
        error=_first(body.get("error"), attributes.get("error"), attributes.get("code")),
        cause=_first(body.get("cause"), attributes.get("cause"), attributes.get("reason")),
        body=message["Body"],
    )


def drain(sqs: Any, queue_url: str) -> list[EndMessage]:
    """Every message of the queue, taken off it: a FIFO queue shows no more of a group while some are in flight."""
    found: list[EndMessage] = []
    while True:
        answer = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        messages = answer.get("Messages", [])
        if not messages:
            return found
        found += [parse_end_message(message) for message in messages]
        for message in messages:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])


def read_slots(dynamodb: Any, table: str, process: str) -> tuple[int, list[str]]:
    """(slots_in_use, the holders' names) of the process, by a consistent read. Raises LookupError without its item."""
    item = dynamodb.get_item(TableName=table, Key={"process_name": {"S": process}}, ConsistentRead=True).get("Item")
    if item is None:
        raise LookupError(f"table {table} has no item for process {process}: the deployment should have created it")
    return int(item["slots_in_use"]["N"]), sorted(item["holders"]["M"])


def queue_depth(sqs: Any, queue_url: str) -> int:
    """Messages on the queue: visible, hidden and delayed."""
    names = ["", "NotVisible", "Delayed"]
    attributes = [f"ApproximateNumberOfMessages{name}" for name in names]
    answer = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=attributes)["Attributes"]
    return sum(int(answer.get(name, 0)) for name in attributes)


def read_outputs(s3: Any, bucket: str, prefix: str) -> frozenset[str]:
    """The keys under the prefix."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return frozenset(entry["Key"] for page in pages for entry in page.get("Contents", []))
