"""Records of a small `make run-worker` without faults. Seconds; the first request is sent at 1000.

Two callers; an attempt may take 2 s. `LATE` has a Retry-After of 25 s, and its schedule is due at 50 s. `PLAIN`
succeeds. `SLOW` is given up after 2 s, and then succeeds. `MISSING` has no input, `NONSENSE` is no valid message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dev.emulator.downstream import Call, Step
from dev.emulator.worker_client import DeadLetter, LedgerRow
from dev.scenarios.worker.worker_figures import Parameters, build
from dev.scenarios.worker.worker_mix import Kind, Poison, Request
from dev.scenarios.worker.worker_records import Manifest, Records, Sample, Schedule, SentRequest
from tests.scenarios.reports import run_of

ORIGIN = 1000.0
LATE, PLAIN, SLOW, MISSING, NONSENSE = "a/1", "a/2", "a/3", "a/4", "a/5"
LINES = {"sun": ('{"weather": "sun"}',), "rain": ('{"weather": "rain"}', '{"weather": "rain", "wind": 2}')}
FIRST, AGAIN = "1970-01-01T00:16:40.500Z", "1970-01-01T00:17:31.000Z"


def key(name: str) -> str:
    return f"work/input/{name.replace('/', '-')}.jsonl"


def request(name: str, kind: Kind = "normal", *steps: Step, **more: Any) -> Request:
    parts = None if kind == "poison" else LINES
    fields: dict[str, Any] = {"body": f"the body of {name}", "content": b"", "steps": steps, "parts": parts}
    return Request(request_id=name, kind=kind, key=key(name), **(fields | more))


def call(name: str, number: int, began: float, ended: float | None, answer: str | None = "200") -> Call:
    return Call(key(name), number, ORIGIN + began, None if ended is None else ORIGIN + ended, answer)


def row(name: str, status: str, attempts: int, failed: int) -> LedgerRow:
    return LedgerRow(name, status, attempts, FIRST, AGAIN if attempts > 1 else FIRST, tuple(range(1, failed + 1)))


def part_key(name: str, attempt: int, value: str) -> str:
    return f"work/parts/{name}/{attempt}/0a/{value}.jsonl"


def manifest(name: str, attempt: int, at: float) -> Manifest:
    parts = {value: part_key(name, attempt, value) for value in LINES}
    return Manifest(f"work/published/{name}.json", name, attempt, parts, ORIGIN + at)


def objects(*published: tuple[str, int]) -> dict[str, bytes]:
    """The parts of these requests' attempts."""
    return {
        part_key(name, attempt, value): "".join(f"{line}\n" for line in lines).encode()
        for name, attempt in published
        for value, lines in LINES.items()
    }


NO_INPUT = Poison("the input is missing", "Poison", "does not exist. Upload it")
NO_JSON = Poison("the body is not JSON", "InvalidMessage", "JSON")
REQUESTS = [
    request(LATE, "normal", Step(0.5, "slow_down", 25), Step(0.5), retry_after=25),
    request(PLAIN, "normal", Step(0.5)),
    request(SLOW, "slow", Step(5.0), Step(0.5)),
    request(MISSING, "poison", Step(0.3), poison=NO_INPUT),
    request(NONSENSE, "poison", poison=NO_JSON),
]
ENTRY = {
    "attempt": 1,
    "at": FIRST,
    "error": "Poison: s3://bucket/key does not exist. Upload it before you send its message",
}
DEAD_LETTER = DeadLetter(
    body="the next attempt's",
    sent=ORIGIN + 1.8,
    code="Poison",
    reason="Poison: s3://bucket/key does not exist. Upload it before you send its message",
    idempotency_key=MISSING,
    retry_count=1,
    first_attempt_at=FIRST,
    last_attempt_at=FIRST,
    history=[ENTRY],
)
UNREAD = DeadLetter(
    body=f"the body of {NONSENSE}",
    sent=ORIGIN + 2.0,
    code="InvalidMessage",
    reason="body is not JSON",
    idempotency_key=None,
    retry_count=None,
    first_attempt_at=None,
    last_attempt_at=None,
    history=None,
)


def records(**changes: Any) -> Records:
    fields: dict[str, Any] = {
        "sent": [SentRequest(each, ORIGIN) for each in REQUESTS],
        "calls": [
            call(LATE, 1, 0.5, 1.0, "503"),
            call(PLAIN, 1, 0.6, 1.1),
            call(SLOW, 1, 1.2, 3.2, "gone"),
            call(MISSING, 1, 1.3, 1.6, "404"),
            call(SLOW, 2, 5.0, 5.5),
            call(LATE, 2, 51.0, 51.5),
        ],
        "rows": [
            row(LATE, "SUCCEEDED", 2, 1),
            row(PLAIN, "SUCCEEDED", 1, 0),
            row(SLOW, "SUCCEEDED", 2, 1),
            row(MISSING, "DEAD_LETTERED", 1, 1),
        ],
        "dead": [DEAD_LETTER, UNREAD],
        "manifests": [manifest(LATE, 2, 51.7), manifest(PLAIN, 1, 1.3), manifest(SLOW, 2, 5.7)],
        "parts": objects((LATE, 2), (PLAIN, 1), (SLOW, 2)),
        "schedules": [Schedule("schedule", LATE, ORIGIN + 50)],
        "left": {"messages": 0, "schedules": 0, "undelivered schedules": 0},
        "samples": [Sample(ORIGIN + 0.2, "CLOSED", 2, 5), Sample(ORIGIN + 1.2, "CLOSED", 1, 4)],
    }
    return Records(**(fields | changes))


def changed[Item](items: Sequence[Item], index: int, **changes: Any) -> list[Item]:
    item: Any = items[index]
    return [*items[:index], replace(item, **changes), *items[index + 1 :]]


def many(count: int, gap: float) -> Records:
    """Two concurrent requests of `count` at a time. All fail first; their second calls come `gap` seconds later.

    With a gap of 0 each pair waits for its retries inside the worker, before the next pair begins.
    """
    names = [f"b/{number}" for number in range(count)]
    begins = [(number // 2) * (1.0 if gap else 2.0) for number in range(count)]
    calls = [call(name, 1, at, at + 1.0, "500") for name, at in zip(names, begins, strict=True)]
    calls += [call(name, 2, at + 1.0 + gap, at + 2.0 + gap) for name, at in zip(names, begins, strict=True)]
    return records(
        sent=[SentRequest(request(name, "normal", Step(1.0, "error"), Step(1.0)), ORIGIN) for name in names],
        calls=calls,
        rows=[row(name, "SUCCEEDED", 2, 1) for name in names],
        dead=[],
        manifests=[manifest(name, 2, at + 2.1 + gap) for name, at in zip(names, begins, strict=True)],
        parts=objects(*((name, 2) for name in names)),
    )


def report(recorded: Records) -> dict[str, Any]:
    parameters = Parameters(len(recorded.sent), 1, 0.15, 2, 25, recorded.outage is not None)
    return build(parameters, recorded, run_of(run=4.2))
