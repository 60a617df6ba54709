"""Records of a soak, by AWS and by the run. All times are seconds since the epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
class Change:
    """An item of the slot table after a write.

    Args:
        holders: name -> state.
        weights: name -> weight, of the holders that do not have weight 1.
        registered: the executions of the waiting requests.
    """

    at: float
    process: str
    limit: int
    count: int
    holders: Mapping[str, str]
    paused: bool
    weights: Mapping[str, int] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()

    @property
    def held(self) -> int:
        """The sum of the holders' weights."""
        return sum(self.weights.get(name, 1) for name in self.holders)


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
    changes: Sequence[Change]
    janitor_runs: Sequence[JanitorRun]
    faults: Sequence[FaultMark]
    calm_from: float  # from this instant no fault acts, and the janitor is paused
    grace: float
    left: Mapping[str, int] = field(default_factory=dict)  # the remainder at the end, by kind


class Journal:
    """Reads the changes of the slot table from the engine's journal."""

    def __init__(self, file: Path, table: str) -> None:
        self._file = file
        self._table = table
        self._offset = 0
        self._newest: dict[str, Change] = {}
        self.changes: list[Change] = []

    def read(self) -> dict[str, Change]:
        """Read the new entries; the newest state of every process."""
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith(b"\n"):
                    self._offset += len(line)
                    entry = json.loads(line)
                    if entry["table"] == self._table:
                        change = parse_change(entry["at"], entry["item"])
                        self.changes.append(change)
                        self._newest[change.process] = change
        return self._newest


def parse_change(at: float, item: Mapping[str, Any]) -> Change:
    """An item in DynamoDB's JSON."""
    holders = {name: entry["M"] for name, entry in item["holders"]["M"].items()}
    waiting = [entry["M"] for entry in item.get("waiting", {}).get("M", {}).values()]
    return Change(
        at=at,
        process=item["process_name"]["S"],
        limit=int(item["slot_limit"]["N"]),
        count=int(item["slots_in_use"]["N"]),
        holders={name: holder["state"]["S"] for name, holder in holders.items()},
        paused=item.get("paused", {}).get("BOOL", False),
        weights={name: int(holder["weight"]["N"]) for name, holder in holders.items() if "weight" in holder},
        registered=frozenset(entry["execution"]["S"] for entry in waiting if "receipt_handle" in entry),
    )


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
