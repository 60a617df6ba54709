"""Records of the downstream, the ledger, S3, queues and schedules, and each request's outcome. Epoch seconds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.downstream import Call, Outage
from dev.emulator.worker_client import DeadLetter, LedgerRow

from .worker_mix import Request

PUBLISHED = "work/published/"
REFUSALS = ("503", "dropped")  # the answers in an outage


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
    at: float


@dataclass(frozen=True)
class Records:
    sent: Sequence[SentRequest]
    calls: Sequence[Call]
    rows: Sequence[LedgerRow]
    dead: Sequence[DeadLetter]
    manifests: Sequence[Manifest]
    left: Mapping[str, int]  # entries at the end in the queue, the schedule group and its dead-letter queue
    outage: Outage | None = None


def read_manifests(s3: Any, bucket: str) -> list[Manifest]:
    found = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=PUBLISHED):
        for entry in page.get("Contents", []):
            manifest = json.loads(s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
            found.append(Manifest(manifest["request_id"], manifest["attempt"], entry["LastModified"].timestamp()))
    return found


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
    def end(self) -> str:
        """Where it has ended, by S3 and the dead-letter queue."""
        return "succeeded" if self.manifests else "dead-lettered" if self.dead else "nowhere"

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
