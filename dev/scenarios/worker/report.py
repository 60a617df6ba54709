"""The run's report: records in, figures and checks out. Pure.

Keys of report.json (times in seconds; instants count from the first request sent):

| key | meaning |
|---|---|
| `parameters` | requests, seed, scale, workers and retry_after of this run, and the limit of an attempt, work_seconds |
| `started_at` | when the first request was sent, ISO 8601, UTC |
| `succeeded`, `dead_lettered`, `nowhere` | requests by where they ended, by S3 and the dead-letter queue |
| `kinds` | the same by kind |
| `codes` | dead letters by code |
| `attempts` | how many requests of each kind took how many attempts, by number; by the ledger, and one for a body |
| | that is no message, of which the ledger does not know |
| `answers` | the downstream's calls by how they ended |
| `most_callers` | the most at once, by the downstream |
| `most_under_way` | the most requests between their first call and the end of their last |
| `places_used` | share of the callers' time that calls fill while a request waits for its first one; null: none did |
| `waits` | by kind: count, p50, p90, max of `first_call` and of `end`, from when it was sent |
| `schedules` | retries that were seen with Scheduler: request_id, due |
| `total_seconds` | first request sent to the last end |
| `checks` | name, ok (null: this run could not show it), and what was found, for each claim the run has to show |
| `ok` | no check fails |
| `fates` | one entry a request: request_id, kind, what (is wrong with it), end, sent, ended, attempts, dead_letters |
| | (code, reason), calls (of the downstream: began, ended, answer) |
| `phases` | seconds each phase took |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dev.scenarios.runner.checking import none_fails
from dev.scenarios.slots.figures import peak, percentile

from . import checks, load
from .fates import Fate, fates
from .mix import KINDS, limit
from .records import Records


@dataclass(frozen=True)
class Parameters:
    """`retry_after`: seconds; what the one request is told whose retry has to go by Scheduler."""

    requests: int
    seed: int
    scale: float
    workers: int
    retry_after: int

    @property
    def work_seconds(self) -> int:
        return limit(self.scale)


def build(parameters: Parameters, records: Records, phases: dict[str, float]) -> dict[str, Any]:
    """The report of one run, as it is written to report.json. At least one request must have been sent."""
    all_fates, strangers = fates(records)
    origin = min(fate.sent for fate in all_fates)
    end = load.last_instant(records)
    held_to = [
        checks.all_succeeded(all_fates, strangers),
        checks.results_whole(all_fates, records),
        checks.poison_set_aside(all_fates, strangers),
        checks.poison_leaves_at_once(all_fates),
        checks.ledger_agrees(all_fates, strangers),
        load.never_above(records, parameters.workers),
        load.slow_ones_let_go(all_fates, parameters.work_seconds),
        load.retries_hold_no_place(all_fates, records, parameters.workers),
        load.went_by_schedule(all_fates, records),
        checks.nothing_left(all_fates, records),
    ]
    used = load.places_used(all_fates, records, parameters.workers)
    return {
        "parameters": asdict(parameters) | {"work_seconds": parameters.work_seconds},
        "started_at": datetime.fromtimestamp(origin, UTC).isoformat(timespec="milliseconds"),
        **{name: sum(fate.end == name for fate in all_fates) for name in ("succeeded", "dead_lettered", "nowhere")},
        "kinds": {kind: _counted(fate.end for fate in all_fates if fate.request.kind == kind) for kind in KINDS},
        "codes": _counted(letter.code for letter in records.dead),
        "attempts": {
            kind: _counted(fate.attempts for fate in all_fates if fate.request.kind == kind) for kind in KINDS
        },
        "answers": _counted(call.answer for call in records.calls),
        "most_callers": peak(load.interval(call, end) for call in records.calls),
        "most_under_way": load.under_way(all_fates, end),
        "places_used": None if used is None else round(used, 3),
        "waits": {kind: _waits([fate for fate in all_fates if fate.request.kind == kind]) for kind in KINDS},
        "schedules": [
            {"request_id": booking.request_id, "due": _round(booking.due - origin)} for booking in records.bookings
        ],
        "total_seconds": _round(end - origin),
        "checks": [asdict(check) for check in held_to],
        "ok": none_fails(held_to),
        "fates": [_fate(fate, origin) for fate in all_fates],
        "phases": {name: round(seconds, 2) for name, seconds in phases.items()},
    }


def _counted(values: Iterable[Any]) -> dict[str, int]:
    counts = {str(value): count for value, count in Counter(values).items()}
    return {name: counts[name] for name in sorted(counts, key=lambda name: (len(name), name))}  # 9 before 10


def _round(value: float) -> float:
    return round(value, 3)


def _waits(chosen: Sequence[Fate]) -> dict[str, dict[str, float | int | None]]:
    return {
        "first_call": _spread([fate.calls[0].began - fate.sent for fate in chosen if fate.calls]),
        "end": _spread([fate.ended - fate.sent for fate in chosen if fate.ended is not None]),
    }


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    shares = {"p50": percentile(values, 0.5), "p90": percentile(values, 0.9), "max": max(values, default=None)}
    return {"count": len(values), **{name: _since(value, 0.0) for name, value in shares.items()}}


def _since(instant: float | None, origin: float) -> float | None:
    return None if instant is None else _round(instant - origin)


def _fate(fate: Fate, origin: float) -> dict[str, Any]:
    return {
        "request_id": fate.name,
        "kind": fate.request.kind,
        "what": fate.request.poison.what if fate.request.poison else None,
        "end": fate.end,
        "sent": _round(fate.sent - origin),
        "ended": _since(fate.ended, origin),
        "attempts": fate.attempts,
        "dead_letters": [{"code": letter.code, "reason": letter.reason} for letter in fate.dead],
        "calls": [
            {"began": _round(call.began - origin), "ended": _since(call.ended, origin), "answer": call.answer}
            for call in fate.calls
        ],
    }
