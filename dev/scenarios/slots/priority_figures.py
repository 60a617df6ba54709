"""The figures of `make run PRIORITIES=yes`: records in, report out. Pure. priority_claims.py has the claims.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the first
request sent):

| key | meaning |
|---|---|
| `requests`, `succeeded`, `failed`, `kept`, `dead_lettered`, `total_seconds` | as in slot_figures.py |
| `slots_in_use_at_end` | as in slot_figures.py |
| `limits` | (instant, limit): at the start, and raised by the operator |
| `most_weight` | the most weight at the same time, before and after the limit was raised: glue_runs (alive), |
| | glue_states (inside RunGlueJob), held (between the start and ReleaseSlot) |
| `waits` | by priority: count, p50, max of the seconds from sending to start, without the blocked request |
| `handoff` | count, median, p99, max: from a release to the start of the request that had the turn and fitted |
| `handoffs` | one entry per hand-off: at, seconds, request_id, priority |
| `passed` | by urgent request that was refused: starts of lower priority between its first refusal and its start |
| `ahead` | starts while a higher priority was queued, most of them behind its head (priority_claims.py) |
| `timeline` | one entry per request: request_id, priority, weight, sent, started, released (its entry into |
| | ReleaseSlot), ended, end (the workflow's status, CANCELLED, or null), blocked_until (the limit was raised, or |
| | null) |
"""

from __future__ import annotations

import statistics
from typing import Any

from dev.scenarios.runner.scenario import Run
from slotkeeper.slots.request import PRIORITIES
from slotkeeper_cli.intervals import rounded, since, spread

from . import priority_claims, slot_figures
from .priority_records import PriorityRecords
from .slot_figures import FAILURES, Parameters
from .slot_requests import SentRequest


def build(parameters: Parameters, records: PriorityRecords, run: Run) -> dict[str, Any]:
    """The report of one run. At least one request must have been sent."""
    sent, last, aws = records.sent, records.last, records.records
    origin = min(each.at for each in sent)
    handoffs = [turn for turn in records.turns if turn.started and turn.after_release]
    gaps = [turn.seconds for turn in handoffs]
    median = statistics.median(gaps) if gaps else None
    ends = [e.stopped for e in aws.executions if e.stopped is not None]
    claims = [
        slot_figures.accounted(sent, aws, last),
        *priority_claims.claims(records),
        slot_figures.slots_are_released(aws),
        slot_figures.hand_off_is_fast(median, len(gaps)),
        slot_figures.failed_are_kept(last, aws.kept),
        slot_figures.outcomes_as_expected(sent, aws, last),
    ]
    figures = {
        "requests": len(sent),
        "succeeded": sum(e.status == "SUCCEEDED" for e in last.values()),
        "failed": sum(e.status in FAILURES for e in last.values()),
        "kept": [slot_figures.end_message(message) for message in aws.kept],
        "dead_lettered": [slot_figures.end_message(message) for message in aws.dead],
        "limits": [(max(0.0, since(at, origin) or 0.0), limit) for at, limit in records.limits],
        "most_weight": priority_claims.most_weight(records),
        "waits": {priority: _waits(records, priority) for priority in PRIORITIES},
        "handoff": {"count": len(gaps), "median": rounded(median)} | spread(gaps, p99=0.99),
        "handoffs": [
            {"at": since(turn.began, origin), "seconds": rounded(turn.seconds)}
            | {"request_id": turn.request.name, "priority": turn.request.priority}
            for turn in handoffs
        ],
        "passed": priority_claims.passed(records),
        "ahead": priority_claims.ahead(records),
        "timeline": [_entry(each, records, origin) for each in sent],
        "slots_in_use_at_end": aws.slots_in_use,
        "total_seconds": rounded(max(ends, default=origin) - origin),
    }
    return run.report(parameters, origin, claims, figures)


def _waits(records: PriorityRecords, priority: str) -> dict[str, float | int | None]:
    waits = [
        records.last[name].started - each.at
        for each in records.sent
        if each.request.priority == priority
        and (name := each.request.request_id) in records.last
        and name != records.mix.blocked
    ]
    return spread(waits, p50=0.5)


def _entry(sent: SentRequest, records: PriorityRecords, origin: float) -> dict[str, Any]:
    request = sent.request
    execution = records.last.get(request.request_id)
    instants: dict[str, float | None] = {
        "sent": sent.at,
        "started": execution.started if execution else None,
        "released": execution.entered("ReleaseSlot") if execution else None,
        "ended": execution.stopped if execution else records.dead_at.get(request.request_id),
        "blocked_until": records.raised[1] if records.raised and request.request_id == records.mix.blocked else None,
    }
    cancelled = any(m.request_id == request.request_id and m.error == "Cancelled" for m in records.records.dead)
    end = execution.status if execution else "CANCELLED" if cancelled else None
    named = {"request_id": request.request_id, "priority": request.priority, "weight": request.weight, "end": end}
    return named | {name: since(instant, origin) for name, instant in instants.items()}
