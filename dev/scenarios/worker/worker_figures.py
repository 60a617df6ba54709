"""The figures and claims of `make run-worker`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the first
request sent):

| key | meaning |
|---|---|
| `parameters` | also work_seconds, the limit of an attempt |
| `succeeded`, `dead_lettered`, `nowhere` | requests by their end, by S3 and the dead-letter queue |
| `kinds` | the same by kind |
| `codes` | dead letters by code |
| `attempts` | requests by kind and number of attempts, by the ledger; one for an invalid message |
| `answers` | the downstream's calls by their answer |
| `most_callers` | the most concurrent callers, by the downstream |
| `most_under_way` | the most requests between the start of their first call and the end of their last |
| `waits` | by kind: count, p50, p90, max of `first_call` and of `end`, from the sending |
| `schedules` | retries read from Scheduler: request_id, due |
| `total_seconds` | first request sent to last record |
| `samples` | about each second: at, breaker (its state), permitted (callers), backlog (messages on the queue) |
| `outage` | worker_outage.py explains it; null without an outage |
| `fates` | one entry per request: request_id, kind, what (its defect), end, sent, ended, attempts, dead_letters |
| | (code, reason), calls (of the downstream: began, ended, answer) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import dropwhile
from typing import Any

from dev.emulator.downstream import Call
from dev.emulator.live_view import counted
from dev.emulator.worker_client import DeadLetter, LedgerRow
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import Run
from slotkeeper_cli.intervals import Interval, peak, since, spread, tally

from . import worker_outage
from .worker_mix import KINDS, Poison, limit
from .worker_records import End, Records, RequestOutcome, Unassigned, request_outcomes

# With fewer than this many requests per caller, a run does not show that retries use no caller.
LARGE_ENOUGH = 10
NO_POISON = "no poison was sent"
FINAL = ("SUCCEEDED", "DEAD_LETTERED")
Outcomes = Sequence[RequestOutcome]


@dataclass(frozen=True)
class Parameters:
    """`retry_after`: seconds in the answer to the request whose retry Scheduler sends. `outage`: there is one."""

    requests: int
    seed: int
    scale: float
    workers: int
    retry_after: int
    outage: bool = False

    @property
    def work_seconds(self) -> int:
        return limit(self.scale)


def build(parameters: Parameters, records: Records, run: Run) -> dict[str, Any]:
    """The report of one run. At least one request must have been sent."""
    outcomes, unassigned = request_outcomes(records)
    origin, end = min(each.sent for each in outcomes), last_instant(records)
    by_kind = {kind: [each for each in outcomes if each.request.kind == kind] for kind in KINDS}
    claims = [
        all_succeeded(outcomes, unassigned),
        results_complete(outcomes, records),
        poison_is_dead_lettered(outcomes, unassigned),
        poison_has_one_attempt(outcomes),
        ledger_agrees(outcomes, unassigned),
        never_above(records, parameters.workers),
        slow_calls_end(outcomes, parameters.work_seconds),
        retries_use_no_caller(outcomes, records, parameters.workers),
        went_by_schedule(outcomes, records),
        nothing_left(outcomes, records),
        *(worker_outage.claims(records.outage) if records.outage else []),
    ]
    figures = {
        **{str(each): sum(outcome.end is each for outcome in outcomes) for each in End},
        "kinds": {kind: tally(each.end for each in some) for kind, some in by_kind.items()},
        "codes": tally(message.code for message in records.dead),
        "attempts": {kind: tally(each.attempts for each in some) for kind, some in by_kind.items()},
        "answers": tally(call.answer for call in records.calls),
        "most_callers": peak(interval(call, end) for call in records.calls),
        "most_under_way": under_way(outcomes, end),
        "waits": {kind: _waits(some) for kind, some in by_kind.items()},
        "schedules": [{"request_id": each.request_id, "due": since(each.due, origin)} for each in records.schedules],
        "total_seconds": since(end, origin),
        "samples": [asdict(each) | {"at": since(each.at, origin)} for each in records.samples],
        "outage": worker_outage.figures(records.outage, origin, end) if records.outage else None,
        "fates": [_outcome(each, origin) for each in outcomes],
    }
    report = run.report(parameters, origin, claims, figures)
    return report | {"parameters": asdict(parameters) | {"work_seconds": parameters.work_seconds}}


def _waits(outcomes: Outcomes) -> dict[str, dict[str, float | int | None]]:
    waits = {
        "first_call": [each.calls[0].began - each.sent for each in outcomes if each.calls],
        "end": [each.ended - each.sent for each in outcomes if each.ended is not None],
    }
    return {name: spread(values, p50=0.5, p90=0.9) for name, values in waits.items()}


def _outcome(outcome: RequestOutcome, origin: float) -> dict[str, Any]:
    return {
        "request_id": outcome.name,
        "kind": outcome.request.kind,
        "what": outcome.request.poison.what if outcome.request.poison else None,
        "end": str(outcome.end),
        "sent": since(outcome.sent, origin),
        "ended": since(outcome.ended, origin),
        "attempts": outcome.attempts,
        "dead_letters": [{"code": each.code, "reason": each.reason} for each in outcome.dead],
        "calls": [
            {"began": since(call.began, origin), "ended": since(call.ended, origin), "answer": call.answer}
            for call in outcome.calls
        ],
    }


def interval(call: Call, end: float) -> Interval:
    """Of a call. One that has not ended lasts until `end`."""
    return call.began, end if call.ended is None else call.ended


def last_instant(records: Records) -> float:
    """The last instant in the records."""
    calls = [call.ended or call.began for call in records.calls]
    ends = [manifest.at for manifest in records.manifests] + [message.sent for message in records.dead]
    return max(calls + ends + [each.at for each in records.sent])


def under_way(outcomes: Outcomes, end: float) -> int:
    """The most requests between the start of their first call and the end of their last."""
    return peak((each.calls[0].began, interval(each.calls[-1], end)[1]) for each in outcomes if each.calls)


# ---------------------------------------------------------------------------------------------- claims about requests


def _poison(outcomes: Outcomes) -> list[RequestOutcome]:
    return [each for each in outcomes if each.request.kind == "poison"]


def all_succeeded(outcomes: Outcomes, unassigned: Unassigned) -> Claim:
    """R1, R2: each request has one effect, its manifest."""
    able = [each for each in outcomes if each.request.kind != "poison"]
    problems = {
        "not published": [each.name for each in able if not each.manifests],
        "published more than once": [each.name for each in able if len(each.manifests) > 1],
        "dead-lettered": [
            f"{each.name} ({', '.join(message.code or 'no code' for message in each.dead)})"
            for each in able
            if each.dead
        ],
        "published although poison": [each.name for each in _poison(outcomes) if each.manifests],
        "published but not sent": unassigned.manifests,
    }
    finding = f"{len(able)} of {len(able)} published, once each"
    return judge("each request that can succeed succeeds once", problems, finding)


def results_complete(outcomes: Outcomes, records: Records) -> Claim:
    """The manifest's parts contain exactly the input's lines, and no other part exists."""
    wrong: list[str] = []
    published: set[str] = set()
    for outcome in outcomes:
        for manifest in outcome.manifests:
            published.update(manifest.parts.values())
            parts = {
                value: tuple(records.parts.get(key, b"").decode().splitlines()) for value, key in manifest.parts.items()
            }
            if parts != outcome.request.parts:
                wrong.append(outcome.name)
    problems = {"not the input's lines": wrong, "in no manifest": sorted(set(records.parts) - published)}
    name = "each result is complete, and no other part is left"
    return judge(name, problems, counted(len(published), "part"), shown=bool(published))


def poison_is_dead_lettered(outcomes: Outcomes, unassigned: Unassigned) -> Claim:
    """R4: one dead letter for each, with the reason, the times and the number of attempts."""
    poison = _poison(outcomes)
    problems = {
        "not one dead letter": [f"{each.name} ({len(each.dead)})" for each in poison if len(each.dead) != 1],
        "without its history": [
            f"{each.name} ({missing})"
            for each in poison
            for message in each.dead
            if each.request.poison and (missing := _missing(each, each.request.poison, message))
        ],
        "dead letters of no request": unassigned.dead,
    }
    finding = counted(len(poison), "dead letter") if poison else NO_POISON
    return judge("each poison request has one dead letter with its history", problems, finding, shown=bool(poison))


def _missing(outcome: RequestOutcome, poison: Poison, message: DeadLetter) -> str:
    """The expected parts that are missing. An invalid message has no attempts and no times."""
    wanted = {"code": message.code == poison.code, "reason": poison.reason in (message.reason or "")}
    if outcome.request.is_message:
        last = 1 + outcome.refused
        history = [(each.get("attempt"), poison.reason in each.get("error", "")) for each in message.history or []]
        wanted |= {
            "attempts": message.retry_count == last,
            "first time": bool(message.first_attempt_at),
            "last time": bool(message.last_attempt_at),
            "history": history == [(number, number == last) for number in range(1, last + 1)],
        }
    return _false(wanted)


def _false(facts: dict[str, bool]) -> str:
    return ", ".join(fact for fact, holds in facts.items() if not holds)


def poison_has_one_attempt(outcomes: Outcomes) -> Claim:
    """R3: one attempt, and at most one call of the downstream, besides those that failed because of the outage."""
    poison = _poison(outcomes)
    problems = {
        "tried again": [f"{each.name} ({each.attempts})" for each in poison if each.attempts > 1 + each.refused],
        "called again": [f"{each.name} ({len(each.calls)})" for each in poison if len(each.calls) > 1 + each.refused],
    }
    calls = counted(sum(len(each.calls) for each in poison), "call")
    finding = f"{counted(len(poison), 'attempt')}, {calls} of the downstream" if poison else NO_POISON
    return judge("poison has one attempt", problems, finding, shown=bool(poison))


def ledger_agrees(outcomes: Outcomes, unassigned: Unassigned) -> Claim:
    """The ledger against three independent records."""
    wrong = [f"{each.name} ({what})" for each in outcomes if (what := _disagreement(each))]
    rows = counted(sum(each.row is not None for each in outcomes), "row")
    problems = {"disagree": wrong, "rows of no request": unassigned.rows}
    return judge("the ledger agrees with S3, the dead letters and the downstream", problems, rows)


def _disagreement(outcome: RequestOutcome) -> str:
    row = outcome.row
    if row is None:
        return "no row" if outcome.request.is_message else ""
    if not outcome.request.is_message:
        return "has a row"
    status = {End.SUCCEEDED: "SUCCEEDED", End.DEAD_LETTERED: "DEAD_LETTERED", End.NOWHERE: "neither"}[outcome.end]
    failed = row.attempts - 1 if outcome.manifests else row.attempts
    attempts = counted(row.attempts, "attempt")
    return _false(
        {
            f"{row.status}, {outcome.end}": row.status == status,
            f"{attempts}, {counted(len(outcome.calls), 'call')}": len(outcome.calls) <= row.attempts,
            f"{attempts}, failed {row.history}": row.history == tuple(range(1, failed + 1)),
            "another attempt published": all(manifest.attempt == row.attempts for manifest in outcome.manifests),
            "the dead letter's attempts or times": all(_same(message, row) for message in outcome.dead),
        }
    )


def _same(message: DeadLetter, row: LedgerRow) -> bool:
    stated = (message.retry_count, message.first_attempt_at, message.last_attempt_at)
    return stated == (row.attempts, row.first_attempt_at, row.last_attempt_at)


def nothing_left(outcomes: Outcomes, records: Records) -> Claim:
    """R1: no message, schedule or open row is left."""
    open_rows = [f"{each.name} ({each.row.status})" for each in outcomes if each.row and each.row.status not in FINAL]
    problems = {"left": [f"{count} {what}" for what, count in records.left.items() if count], "not final": open_rows}
    return judge("no request is left waiting", problems, f"0 {', 0 '.join(records.left)}")


# ---------------------------------------------------------------------------------------- claims about the downstream


def never_above(records: Records, callers: int) -> Claim:
    """By the downstream: a caller counts from its request to its answer, or until it closes the connection."""
    most = peak(interval(call, last_instant(records)) for call in records.calls)
    name = f"never more than {callers} concurrent callers"
    finding = f"at most {most}, in {counted(len(records.calls), 'call')}"
    if most < callers and len(records.sent) <= LARGE_ENOUGH * callers:
        return Claim(name, None, f"{finding}; too few requests to show it")
    return Claim(name, most == callers, finding)  # in a large run fewer callers are an error


def slow_calls_end(outcomes: Outcomes, work_seconds: float) -> Claim:
    """A slow call delays other requests for at most the limit of an attempt."""
    slow = {
        (each.request.key, number)
        for each in outcomes
        for number, step in enumerate(each.request.steps, 1)
        if step.seconds > work_seconds
    }
    calls = [(each, call) for each in outcomes for call in each.calls if (call.key, call.number) in slow]
    waited = [f"{each.name} ({call.answer})" for each, call in calls if call.answer != "gone"]
    lasted = [(call.ended or call.began) - call.began for _, call in calls]
    finding = "no call was too slow"
    if calls:
        finding = f"{counted(len(calls), 'call')} given up after {min(lasted):.1f} to {max(lasted):.1f} s"
    return judge("a call that is too slow is given up", {"waited for": waited}, finding, shown=bool(calls))


def retries_use_no_caller(outcomes: Outcomes, records: Records, callers: int) -> Claim:
    """A retry that waited inside the worker would use one of the callers."""
    most = under_way(outcomes, last_instant(records))
    name, finding = "a waiting retry uses no caller", f"{counted(most, 'request')} under way"
    if most <= callers and len(outcomes) < LARGE_ENOUGH * callers:
        return Claim(name, None, f"{finding}; too few requests to show it")
    return Claim(name, most > callers, f"{finding}, {callers} callers")


def went_by_schedule(outcomes: Outcomes, records: Records) -> Claim:
    """The retry with the long Retry-After had a schedule, and started after its due time."""
    name = "a retry went through EventBridge Scheduler"
    late = next((each for each in outcomes if each.request.retry_after is not None), None)
    if late is None or late.request.retry_after is None:
        return Claim(name, False, "no request had a Retry-After")
    due = next((schedule.due for schedule in records.schedules if schedule.request_id == late.name), None)
    if due is None:
        return Claim(name, False, f"no schedule for {late.name}")
    # The call with the Retry-After is the first that uses a step, which calls in an outage do not.
    calls = list(dropwhile(lambda call: call.number != 1, late.calls))
    if len(calls) < 2:
        return Claim(name, False, f"no retry of {late.name} after its schedule")
    first, second = calls[:2]
    if second.began < due:
        return Claim(name, False, f"{late.name} was retried {due - second.began:.1f} s before its schedule was due")
    if due < (first.ended or 0.0) + late.request.retry_after:
        return Claim(name, False, f"{late.name} was due before its Retry-After of {late.request.retry_after} s")
    schedules = counted(len(records.schedules), "schedule")
    return Claim(name, True, f"{schedules}; the retry after {second.began - first.began:.0f} s")
