"""What was written down about a soak, by AWS's own records and by the run. All times are seconds since the epoch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.scenarios.slots.records import GlueRun

OVER = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
RETURNED = "RequestReturned"  # the workflow's error when it has given its request back


@dataclass(frozen=True)
class Sent:
    """A message that SQS has taken, in the order of the sends. `bad`: what is wrong with it, empty for a request."""

    process: str
    request_id: str
    message_id: str
    sequence: str
    at: float
    body: str
    bad: str = ""


@dataclass(frozen=True)
class Execution:
    name: str
    request_id: str
    attempt: int
    status: str
    error: str
    started: float
    stopped: float | None
    redrives: int = 0

    @property
    def process(self) -> str:
        return self.name.rsplit("-", 1)[0]


@dataclass(frozen=True)
class Kept:
    """A message of FailedRequestQueue."""

    execution: str
    error: str
    cause: str
    by: str


@dataclass(frozen=True)
class DeadLetter:
    """A message of the dead-letter queue; `source` is the id of the message that was set aside."""

    source: str
    code: str
    reason: str
    body: str
    at: float


@dataclass(frozen=True)
class Change:
    """An item of the slot table after a write: the holders' states by their names."""

    at: float
    process: str
    limit: int
    count: int
    holders: Mapping[str, str]
    paused: bool


@dataclass(frozen=True)
class Round:
    """A round of the janitor. `ok`: it came to its end and reported no error."""

    began: float
    ended: float
    ok: bool


@dataclass(frozen=True)
class Mark:
    """Something that was done to the stack. `process` is empty if it may have met any; `until` is its end."""

    at: float
    kind: str
    said: str = ""
    process: str = ""
    until: float = 0.0


@dataclass(frozen=True)
class Records:
    sent: Sequence[Sent]
    executions: Sequence[Execution]
    runs: Sequence[GlueRun]
    kept: Sequence[Kept]
    dead: Sequence[DeadLetter]
    changes: Sequence[Change]
    rounds: Sequence[Round]
    marks: Sequence[Mark]
    calm_from: float  # from here on nobody disturbs anything, and the janitor rests
    grace: float
    left: Mapping[str, int] = field(default_factory=dict)  # what is still there at the end, by what it is


class Journal:
    """Reads the changes of the slot table from the engine's journal, as they come."""

    def __init__(self, file: Path, table: str) -> None:
        self._file = file
        self._table = table
        self._offset = 0
        self._newest: dict[str, Change] = {}
        self.changes: list[Change] = []

    def read(self) -> dict[str, Change]:
        """The newest state of every process."""
        if self._file.exists():
            with self._file.open() as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith("\n"):
                    self._offset = lines.tell()
                    entry = json.loads(line)
                    if entry["table"] == self._table:
                        change = parse_change(entry["at"], entry["item"])
                        self.changes.append(change)
                        self._newest[change.process] = change
        return self._newest


def parse_change(at: float, item: Mapping[str, Any]) -> Change:
    """An item in DynamoDB's JSON."""
    return Change(
        at=at,
        process=item["process_name"]["S"],
        limit=int(item["slot_limit"]["N"]),
        count=int(item["slots_in_use"]["N"]),
        holders={name: entry["M"]["state"]["S"] for name, entry in item["holders"]["M"].items()},
        paused=item.get("paused", {}).get("BOOL", False),
    )


def read_executions(stepfunctions: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, by their starts."""
    found = []
    for page in stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for listed in page["executions"]:
            told = stepfunctions.describe_execution(executionArn=listed["executionArn"])
            request = json.loads(told["input"])
            found.append(
                Execution(
                    name=told["name"],
                    request_id=request["request_id"],
                    attempt=request["attempt"],
                    status=told["status"],
                    error=told.get("error") or "",
                    started=told["startDate"].timestamp(),
                    stopped=told["stopDate"].timestamp() if told.get("stopDate") else None,
                    redrives=told.get("redriveCount", 0),
                )
            )
    return sorted(found, key=lambda execution: execution.started)


def read_kept(messages: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """FailedRequestQueue's messages."""
    return [
        Kept(told.get("execution_name", ""), told.get("error", ""), told.get("cause", ""), told.get("kept_by", ""))
        for told in (_attributes(message) for message in messages)
    ]


def read_dead(messages: Iterable[Mapping[str, Any]]) -> list[DeadLetter]:
    """The dead-letter queue's messages."""
    return [
        DeadLetter(
            source=told.get("source_message_id", ""),
            code=told.get("code", ""),
            reason=told.get("reason", ""),
            body=message["Body"],
            at=int(message["Attributes"]["SentTimestamp"]) / 1000,
        )
        for message, told in ((message, _attributes(message)) for message in messages)
    ]


def _attributes(message: Mapping[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}


def drain(sqs: Any, queue_url: str) -> list[dict[str, Any]]:
    """Every message of a queue, taken off it."""
    found: list[dict[str, Any]] = []
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        )
        messages = answer.get("Messages", [])
        if not messages:
            return found
        found += messages
        for message in messages:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
