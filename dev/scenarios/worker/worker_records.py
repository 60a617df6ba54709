"""Records of the downstream, the ledger, S3, queues and schedules, and each request's outcome. Epoch seconds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from dev.emulator.downstream import Call
from dev.emulator.worker_client import DeadLetter, LedgerRow

from .worker_mix import Request
from .worker_outage import REFUSALS, OutageRecord, Retried

PUBLISHED, PARTS = "work/published/", "work/parts/"


@dataclass(frozen=True)
class SentRequest:
    """A request that SQS accepted. `at`: before the call."""

    request: Request
    at: float


@dataclass(frozen=True)
class Manifest:
    """A published result. `at`: when S3 stored it."""

    request_id: str
    attempt: int
    parts: Mapping[str, str]  # value -> key
    at: float


@dataclass(frozen=True)
class Schedule:
    """A schedule that was read before it fired."""

    name: str
    request_id: str
    due: float


@dataclass(frozen=True)
class Sample:
    """The state of the run at one instant."""

    at: float
    breaker: str  # CLOSED, OPEN or HALF_OPEN
    permitted: int  # callers; none while the breaker is open, and one for the probe
    backlog: int  # messages on the queue, waiting or in flight


@dataclass(frozen=True)
class Records:
    sent: Sequence[SentRequest]
    calls: Sequence[Call]
    rows: Sequence[LedgerRow]
    dead: Sequence[DeadLetter]
    manifests: Sequence[Manifest]
    parts: Mapping[str, bytes]  # key -> content of the objects under work/parts/
    schedules: Sequence[Schedule]
    left: Mapping[str, int]  # entries at the end in the queue, the schedule group and its dead-letter queue
    samples: Sequence[Sample] = ()
    outage: OutageRecord | None = None


def read_objects(s3: Any, bucket: str, prefix: str) -> dict[str, tuple[bytes, float]]:
    """Key -> content, and when S3 stored it."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {
        entry["Key"]: (s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read(), entry["LastModified"].timestamp())
        for page in pages
        for entry in page.get("Contents", [])
    }


def read_manifests(s3: Any, bucket: str) -> list[Manifest]:
    found = []
    for content, at in read_objects(s3, bucket, PUBLISHED).values():
        manifest = json.loads(content)
        parts = {part["value"]: part["key"] for part in manifest["parts"]}
        found.append(Manifest(manifest["request_id"], manifest["attempt"], parts, at))
    return found


def read_schedules(scheduler: Any, group: str, known: Mapping[str, Schedule]) -> list[Schedule]:
    """The schedules that have not fired. One that disappears between two calls has fired. `known` ones are not read."""
    waiting = []
    for page in scheduler.get_paginator("list_schedules").paginate(GroupName=group):
        for entry in page["Schedules"]:
            name = entry["Name"]
            try:
                waiting.append(known.get(name) or parse_schedule(scheduler.get_schedule(GroupName=group, Name=name)))
            except scheduler.exceptions.ResourceNotFoundException:
                continue
    return waiting


def read_breaker(dynamodb: Any, table: str, most: int) -> tuple[str, int]:
    """The breaker's state and the permitted callers, at most `most`. CLOSED and `most` without an item."""
    item = dynamodb.get_item(TableName=table, Key={"downstream": {"S": "default"}}, ConsistentRead=True).get("Item")
    if item is None:
        return "CLOSED", most
    health = json.loads(item["health"]["S"])
    limit = min(health["limit_set"] or health["limit"] or most, most)
    return health["state"], {"OPEN": 0, "HALF_OPEN": 1}.get(health["state"], limit)


def read_retried(log: Path) -> list[Retried]:
    """The failed attempts with a next one, by the log lines of the functions."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and '"The attempt failed; scheduled the next one"' in line:
            entry = json.loads(line)
            at = datetime.strptime(entry["timestamp"], "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
            found.append(Retried(entry["request_id"], at, entry["counted"]))
    return found


def parse_schedule(schedule: Mapping[str, Any]) -> Schedule:
    """The expression `at(2026-01-31T12:00:00)` is UTC (Scheduler guide, "Schedule types")."""
    due = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")") + "+00:00")
    return Schedule(schedule["Name"], json.loads(schedule["Target"]["Input"])["request_id"], due.timestamp())


# ----------------------------------------------------------------------------------------------------------- outcomes


class End(StrEnum):
    """Where a request ended, by S3 and the dead-letter queue."""

    SUCCEEDED = "succeeded"
    DEAD_LETTERED = "dead_lettered"
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class RequestOutcome:
    """A request with its records."""

    request: Request
    sent: float
    calls: tuple[Call, ...]
    row: LedgerRow | None
    manifests: tuple[Manifest, ...]
    dead: tuple[DeadLetter, ...]

    @property
    def name(self) -> str:
        return self.request.request_id

    @property
    def end(self) -> End:
        if self.manifests:
            return End.SUCCEEDED
        return End.DEAD_LETTERED if self.dead else End.NOWHERE

    @property
    def ended(self) -> float | None:
        """When its result was published, or its dead letter was sent."""
        instants = [manifest.at for manifest in self.manifests] or [message.sent for message in self.dead]
        return min(instants, default=None)

    @property
    def refused(self) -> int:
        """Its calls that failed because of the outage."""
        return sum(call.number == 0 and call.answer in REFUSALS for call in self.calls)

    @property
    def attempts(self) -> int:
        """By the ledger. A request without a row had one attempt if it has ended."""
        return self.row.attempts if self.row else len(self.dead)


def request_outcomes(records: Records) -> tuple[list[RequestOutcome], list[str]]:
    """One for each request, in the order of sending; and the names of records that belong to no request."""
    calls = _by_name((call.key, call) for call in records.calls)
    rows = {row.request_id: row for row in records.rows}
    manifests = _by_name((manifest.request_id, manifest) for manifest in records.manifests)
    # The dead letter of a body without an id is identified by the body.
    bodies = {each.request.body: each.request.request_id for each in records.sent if not each.request.is_message}
    dead = _by_name((each.idempotency_key or bodies.get(each.body, each.body), each) for each in records.dead)
    outcomes = [
        RequestOutcome(
            request=each.request,
            sent=each.at,
            calls=tuple(calls.get(each.request.key, ())),
            row=rows.pop(each.request.request_id, None),
            manifests=tuple(manifests.pop(each.request.request_id, ())),
            dead=tuple(dead.pop(each.request.request_id, ())),
        )
        for each in records.sent
    ]
    strays: dict[str, Iterable[str]] = {"row": rows, "manifest": manifests, "dead letter": dead}
    return outcomes, [f"{kind} {name}" for kind, names in strays.items() for name in names]


def _by_name[Value](pairs: Iterable[tuple[str, Value]]) -> dict[str, list[Value]]:
    grouped: dict[str, list[Value]] = defaultdict(list)
    for name, value in pairs:
        grouped[name].append(value)
    return dict(grouped)
