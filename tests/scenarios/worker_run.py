"""Records of a small `make run-worker` without faults, and of an outage. Seconds; the first request is sent at 1000.

Two callers; an attempt may take 2 s. `LATE` has a Retry-After of 25 s, and its schedule is due at 50 s. `PLAIN`
succeeds. `SLOW` is given up after 2 s, and then succeeds. `MISSING` has no input, `NONSENSE` is no valid message.

The outage is from 1010 to 1030. The breaker opens after two failures; a probe is due after 4 s at most. Its calls are
of requests "a", "b", ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dev.emulator.downstream import Call, Outage, Step
from dev.emulator.worker_client import DeadLetter, LedgerRow
from dev.scenarios.worker.worker_figures import Parameters, build
from dev.scenarios.worker.worker_mix import Kind, Poison, Request
from dev.scenarios.worker.worker_outage import OutageRecord, Retried, Settings
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
    return Manifest(name, attempt, parts, ORIGIN + at)


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
REASON = "Poison: s3://bucket/key does not exist. Upload it before you send its message"
ENTRY = {"attempt": 1, "at": FIRST, "error": REASON}
DEAD_LETTER = DeadLetter("the next attempt's", ORIGIN + 1.8, "Poison", REASON, MISSING, 1, FIRST, FIRST, [ENTRY])
UNREAD = DeadLetter(f"the body of {NONSENSE}", ORIGIN + 2.0, "InvalidMessage", "body is not JSON", *[None] * 5)


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


def many(gap: float) -> Records:
    """Two concurrent requests of forty at a time. All fail first; their second calls come `gap` seconds later.

    With a gap of 0 each pair waits for its retries inside the worker, before the next pair begins.
    """
    begins = {f"b/{number}": (number // 2) * (1.0 if gap else 2.0) for number in range(40)}
    first = [call(name, 1, at, at + 1.0, "500") for name, at in begins.items()]
    return records(
        sent=[SentRequest(request(name, "normal", Step(1.0, "error"), Step(1.0)), ORIGIN) for name in begins],
        calls=[*first, *(call(name, 2, at + 1.0 + gap, at + 2.0 + gap) for name, at in begins.items())],
        rows=[row(name, "SUCCEEDED", 2, 1) for name in begins],
        dead=[],
        manifests=[manifest(name, 2, at + 2.1 + gap) for name, at in begins.items()],
        parts=objects(*((name, 2) for name in begins)),
    )


def retried(name: str, at: float, *, counted: bool = False) -> Retried:
    return Retried(name, ORIGIN + at, counted)


BEFORE = [call("a", 1, 8.0, 8.5), call("h", 1, 9.5, 10.2)]
DURING = [
    call("a", 0, 10.3, 10.8, "503"),
    call("b", 0, 10.4, 10.9, "dropped"),
    call("c", 0, 10.8, 11.3, "503"),
    call("d", 0, 14.9, 15.4, "dropped"),
    call("e", 0, 19.5, 20.0, "503"),
    call("f", 0, 24.1, 24.6, "dropped"),
    call("g", 0, 28.7, 29.2, "503"),
]
AFTER = [
    call("h", 0, 33.3, 33.8, "404"),
    call("b", 0, 34.0, 34.5),
    call("c", 1, 35.0, 36.4),
    call("d", 1, 36.6, 37.6),
    call("e", 1, 36.6, 37.6),
]
RETRIED = [
    retried("h", 9.0, counted=True),
    retried("a", 10.81, counted=True),
    *(retried(name, 30.0) for name in "bcdefg"),
    retried("b", 50.0, counted=True),
]


def outage(
    calls: Sequence[Call] = (*BEFORE, *DURING, *AFTER), log: Sequence[Retried] = RETRIED, open_at: float | None = 10.7
) -> OutageRecord:
    """`open_at`: when the breaker was read as open, which it was before the outage too."""
    return OutageRecord(
        outage=Outage(ORIGIN + 10.0, ORIGIN + 30.0),
        settings=Settings(threshold=2, recovery=4.0, callers=2),
        calls=calls,
        retried=log,
        request_ids={key(name): name for name in "abcdefgh"},
        seen_open=[ORIGIN + 9.9, *([] if open_at is None else [ORIGIN + open_at])],
    )


def outage_records() -> Records:
    states = ("CLOSED", "OPEN", "HALF_OPEN", "OPEN", "CLOSED")
    return records(outage=outage(), samples=[Sample(ORIGIN + 9 * i, state, 1, 4) for i, state in enumerate(states)])


def report(recorded: Records) -> dict[str, Any]:
    parameters = Parameters(len(recorded.sent), 1, 0.15, 2, 25, recorded.outage is not None)
    return build(parameters, recorded, run_of(run=4.2))
