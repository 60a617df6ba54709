"""The figures and claims of `make run-worker`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the first
request sent):

| key | meaning |
|---|---|
| `parameters` | also work_seconds, the limit of an attempt |
| `succeeded`, `dead_lettered`, `nowhere` | requests by their end, by S3 and the dead-letter queue |
| `kinds` | the same by kind |
| `attempts` | requests by kind and number of attempts, by the ledger; one for an invalid message |
| `answers` | the downstream's calls by their answer |
| `most_callers` | the most concurrent callers, by the downstream |
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
from dev.emulator.worker_client import DeadLetter
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import Run
from slotkeeper_cli.audit.intervals import Interval, peak, since, tally

from . import worker_outage
from .worker_mix import KINDS, limit
from .worker_records import End, Records, RequestOutcome, request_outcomes

# With fewer than this many requests per caller, a run does not show that retries use no caller.
LARGE_ENOUGH = 10
FINAL = {End.SUCCEEDED: "SUCCEEDED", End.DEAD_LETTERED: "DEAD_LETTERED"}  # in the ledger


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


@dataclass(frozen=True)
class Evidence:
    """A run with at least one request. `strays`: records of no request."""

    parameters: Parameters
    records: Records
    outcomes: Sequence[RequestOutcome]
    strays: Sequence[str]

    @property
    def poison(self) -> list[RequestOutcome]:
        return [each for each in self.outcomes if each.request.kind == "poison"]

    @property
    def end(self) -> float:
        """The last instant in the records."""
        calls = [call.ended or call.began for call in self.records.calls]
        ends = [manifest.at for manifest in self.records.manifests] + [message.sent for message in self.records.dead]
        return max(calls + ends + [each.sent for each in self.outcomes])

    @property
    def most_callers(self) -> int:
        """A caller counts from its request to its answer, or until it closes the connection."""
        return peak(self._interval(call, call) for call in self.records.calls)

    @property
    def most_under_way(self) -> int:
        """The most requests between the start of their first call and the end of their last."""
        return peak(self._interval(each.calls[0], each.calls[-1]) for each in self.outcomes if each.calls)

    def _interval(self, first: Call, last: Call) -> Interval:
        """A call that has not ended lasts until the end."""
        return first.began, self.end if last.ended is None else last.ended


def build(parameters: Parameters, records: Records, run: Run) -> dict[str, Any]:
    """The report of one run. At least one request must have been sent."""
    evidence = Evidence(parameters, records, *request_outcomes(records))
    outcomes, end = evidence.outcomes, evidence.end
    origin = min(each.sent for each in outcomes)
    by_kind = {kind: [each for each in outcomes if each.request.kind == kind] for kind in KINDS}
    claims = [judged(evidence) for judged in CLAIMS]
    figures = {
        **{str(each): sum(outcome.end is each for outcome in outcomes) for each in End},
        "kinds": {kind: tally(each.end for each in some) for kind, some in by_kind.items()},
        "attempts": {kind: tally(each.attempts for each in some) for kind, some in by_kind.items()},
        "answers": tally(call.answer for call in records.calls),
        "most_callers": evidence.most_callers,
        "total_seconds": since(end, origin),
        "samples": [asdict(each) | {"at": since(each.at, origin)} for each in records.samples],
        "outage": worker_outage.figures(records.outage, origin, end) if records.outage else None,
        "fates": [_outcome(each, origin) for each in outcomes],
    }
    if records.outage:
        claims += worker_outage.claims(records.outage)
    report = run.report(parameters, origin, claims, figures)
    return report | {"parameters": asdict(parameters) | {"work_seconds": parameters.work_seconds}}


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


# ---------------------------------------------------------------------------------------------- claims about requests


def all_succeeded(run: Evidence) -> Claim:
    """R1, R2: each request has one effect, its manifest."""
    able = [each for each in run.outcomes if each.request.kind != "poison"]
    problems = {
        "not published": [each.name for each in able if not each.manifests],
        "published more than once": [each.name for each in able if len(each.manifests) > 1],
        "dead-lettered": [f"{each.name} ({each.dead[0].code})" for each in able if each.dead],
        "published although poison": [each.name for each in run.poison if each.manifests],
    }
    finding = f"{len(able)} of {len(able)} published, once each"
    return judge("each request that can succeed succeeds once", problems, finding)


def results_complete(run: Evidence) -> Claim:
    """The manifest's parts contain exactly the input's lines, and no other part exists."""
    wrong: list[str] = []
    published: set[str] = set()
    stored = {key: tuple(content.decode().splitlines()) for key, content in run.records.parts.items()}
    for outcome in run.outcomes:
        for manifest in outcome.manifests:
            published.update(manifest.parts.values())
            if {value: stored.get(key) for value, key in manifest.parts.items()} != outcome.request.parts:
                wrong.append(outcome.name)
    problems = {"not the input's lines": wrong, "in no manifest": sorted(set(stored) - published)}
    name = "each result is complete, and no other part is left"
    return judge(name, problems, counted(len(published), "part"), shown=bool(published))


def poison_is_dead_lettered(run: Evidence) -> Claim:
    """R4: one dead letter for each, with the reason and the history of its attempts."""
    problems = {
        "not one dead letter": [f"{each.name} ({len(each.dead)})" for each in run.poison if len(each.dead) != 1],
        "without its history": [
            f"{each.name} ({message.code}, {message.reason})"
            for each in run.poison
            for message in each.dead
            if not _has_history(each, message)
        ],
    }
    name = "each poison request has one dead letter with its history"
    return judge(name, problems, counted(len(run.poison), "dead letter"), shown=bool(run.poison))


def _has_history(outcome: RequestOutcome, message: DeadLetter) -> bool:
    """An invalid message has no attempts. Of any other, the outage may have failed attempts before the last one."""
    poison, last = outcome.request.poison, 1 + outcome.refused
    if not poison or message.code != poison.code or poison.reason not in (message.reason or ""):
        return False
    history = [(each.get("attempt"), poison.reason in each.get("error", "")) for each in message.history or []]
    wanted = [(number, number == last) for number in range(1, last + 1)] if outcome.request.is_message else []
    return history == wanted


def poison_has_one_attempt(run: Evidence) -> Claim:
    """R3: one attempt, and at most one call of the downstream, besides those that failed because of the outage."""
    poison = run.poison
    problems = {
        "tried again": [f"{each.name} ({each.attempts})" for each in poison if each.attempts > 1 + each.refused],
        "called again": [f"{each.name} ({len(each.calls)})" for each in poison if len(each.calls) > 1 + each.refused],
    }
    calls = counted(sum(len(each.calls) for each in poison), "call")
    finding = f"{counted(len(poison), 'attempt')}, {calls} of the downstream"
    return judge("poison has one attempt", problems, finding, shown=bool(poison))


def ledger_agrees(run: Evidence) -> Claim:
    """The ledger against three independent records."""
    wrong = [f"{each.name} ({what})" for each in run.outcomes if (what := _disagreement(each))]
    rows = counted(sum(each.row is not None for each in run.outcomes), "row")
    problems = {"disagree": wrong, "of no request": run.strays}
    return judge("the ledger agrees with S3, the dead letters and the downstream", problems, rows)


def _disagreement(outcome: RequestOutcome) -> str:
    row = outcome.row
    if row is None:
        return "no row" if outcome.request.is_message else ""
    if not outcome.request.is_message:
        return "has a row"
    failed = row.attempts - 1 if outcome.manifests else row.attempts
    attempts, times = counted(row.attempts, "attempt"), (row.attempts, row.first_attempt_at, row.last_attempt_at)
    stated = [(each.retry_count, each.first_attempt_at, each.last_attempt_at) for each in outcome.dead]
    agree = {
        f"{row.status}, {outcome.end}": row.status == FINAL.get(outcome.end),
        f"{attempts}, {counted(len(outcome.calls), 'call')}": len(outcome.calls) <= row.attempts,
        f"{attempts}, failed {row.history}": row.history == tuple(range(1, failed + 1)),
        "another attempt published": all(manifest.attempt == row.attempts for manifest in outcome.manifests),
        "the dead letter's attempts or times": all(each == times for each in stated),
    }
    return ", ".join(what for what, holds in agree.items() if not holds)


def nothing_left(run: Evidence) -> Claim:
    """R1: no message, schedule or open row is left."""
    rows = [each.row for each in run.outcomes if each.row]
    problems = {
        "left": [f"{count} {what}" for what, count in run.records.left.items() if count],
        "not final": [f"{row.request_id} ({row.status})" for row in rows if row.status not in FINAL.values()],
    }
    return judge("no request is left waiting", problems, f"0 {', 0 '.join(run.records.left)}")


# ---------------------------------------------------------------------------------------- claims about the downstream


def never_above(run: Evidence) -> Claim:
    most, callers = run.most_callers, run.parameters.workers
    name = f"never more than {callers} concurrent callers"
    finding = f"at most {most}, in {counted(len(run.records.calls), 'call')}"
    if most < callers and len(run.outcomes) <= LARGE_ENOUGH * callers:
        return Claim(name, None, f"{finding}; too few requests to show it")
    return Claim(name, most == callers, finding)  # in a large run fewer callers are an error


def slow_calls_end(run: Evidence) -> Claim:
    """A slow call delays other requests for at most the limit of an attempt."""
    slow = {
        (each.request.key, number)
        for each in run.outcomes
        for number, step in enumerate(each.request.steps, 1)
        if step.seconds > run.parameters.work_seconds
    }
    calls = [call for call in run.records.calls if (call.key, call.number) in slow]
    waited = [f"{call.key} ({call.answer})" for call in calls if call.answer != "gone"]
    longest = max(((call.ended or call.began) - call.began for call in calls), default=0.0)
    finding = f"{counted(len(calls), 'call')} given up after {longest:.1f} s at most"
    return judge("a call that is too slow is given up", {"waited for": waited}, finding, shown=bool(calls))


def retries_use_no_caller(run: Evidence) -> Claim:
    """A retry that waited inside the worker would use one of the callers."""
    most, callers = run.most_under_way, run.parameters.workers
    name, finding = "a waiting retry uses no caller", f"{counted(most, 'request')} under way, {callers} callers"
    if most <= callers and len(run.outcomes) < LARGE_ENOUGH * callers:
        return Claim(name, None, f"{finding}; too few requests to show it")
    return Claim(name, most > callers, finding)


def went_by_schedule(run: Evidence) -> Claim:
    """The retry with the long Retry-After had a schedule, and started after its due time."""
    name = "a retry went through EventBridge Scheduler"
    late = next((each for each in run.outcomes if each.request.retry_after is not None), None)
    if late is None or late.request.retry_after is None:
        return Claim(name, False, "no request had a Retry-After")
    due = next((schedule.due for schedule in run.records.schedules if schedule.request_id == late.name), None)
    # The call with the Retry-After is the first that uses a step, which calls in an outage do not.
    calls = list(dropwhile(lambda call: call.number != 1, late.calls))
    if due is None or len(calls) < 2:
        return Claim(name, False, f"no {'schedule' if due is None else 'retry'} of {late.name}")
    first, second = calls[:2]
    problems = {
        "retried before its schedule was due": [late.name] if second.began < due else [],
        "due before its Retry-After": [late.name] if due < (first.ended or 0.0) + late.request.retry_after else [],
    }
    schedules = counted(len(run.records.schedules), "schedule")
    return judge(name, problems, f"{schedules}; the retry after {second.began - first.began:.0f} s")


CLAIMS = (
    all_succeeded,
    results_complete,
    poison_is_dead_lettered,
    poison_has_one_attempt,
    ledger_agrees,
    never_above,
    slow_calls_end,
    retries_use_no_caller,
    went_by_schedule,
    nothing_left,
)
