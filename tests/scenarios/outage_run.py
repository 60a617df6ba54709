"""Records of a small run with an outage. Seconds; the outage begins at 1010 and ends at 1030.

Two callers. The breaker opens after two failures; a probe is due after 4 s at most. The requests "a", "b", ... have the
keys "key a", "key b", ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dev.emulator.downstream import Call, Outage
from dev.scenarios.worker.worker_outage import OutageRecord, Retried, Settings

ORIGIN = 1000.0
SETTINGS = Settings(threshold=2, recovery=4.0, callers=2)
NAMES = "abcdefgh"


def call(name: str, began: float, ended: float | None, answer: str | None, number: int = 0) -> Call:
    return Call(f"key {name}", number, ORIGIN + began, None if ended is None else ORIGIN + ended, answer)


def retried(name: str, at: float, *, counted: bool = False) -> Retried:
    return Retried(name, ORIGIN + at, counted)


BEFORE = [call("a", 8.0, 8.5, "200", 1), call("h", 9.5, 10.2, "200", 1)]
DURING = [
    call("a", 10.3, 10.8, "503"),
    call("b", 10.4, 10.9, "dropped"),
    call("c", 10.8, 11.3, "503"),
    call("d", 14.9, 15.4, "dropped"),
    call("e", 19.5, 20.0, "503"),
    call("f", 24.1, 24.6, "dropped"),
    call("g", 28.7, 29.2, "503"),
]
AFTER = [
    call("h", 33.3, 33.8, "404"),
    call("b", 34.0, 34.5, "200"),
    call("c", 35.0, 36.4, "200", 1),
    call("d", 36.6, 37.6, "200", 1),
    call("e", 36.6, 37.6, "200", 1),
]
RETRIED = [
    retried("h", 9.0, counted=True),
    retried("a", 10.81, counted=True),
    *(retried(name, 30.0) for name in "bcdefg"),
    retried("b", 50.0, counted=True),
]


def record(
    calls: Sequence[Call] = (*BEFORE, *DURING, *AFTER), log: Sequence[Retried] = RETRIED, **changes: Any
) -> OutageRecord:
    fields: dict[str, Any] = {
        "outage": Outage(ORIGIN + 10.0, ORIGIN + 30.0),
        "settings": SETTINGS,
        "calls": list(calls),
        "retried": list(log),
        "request_ids": {f"key {name}": name for name in NAMES},
        "seen_open": [ORIGIN + 9.9, ORIGIN + 10.1, ORIGIN + 10.7, ORIGIN + 11.0],
    }
    return OutageRecord(**(fields | changes))
