"""The checks and figures of `make run-worker`, from the records that it has left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.downstream import Call
from dev.emulator.live_view import counted
from dev.emulator.worker_client import DeadLetter
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.scenario import Outcome, since
from slotkeeper.retry.downstream.rules import FIRST_PROBE, PROBE_GROWTH, PROBE_JITTER
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import weighted_steps

from .worker_mix import KINDS, POLICY, limit
from .worker_records import Records, RequestOutcome, request_outcomes

CALLS = {  # by their answer
    "200": "answered",
    "gone": "too slow, given up",
    "500": "500 InternalError",
    "dropped": "connection dropped",
    "404": "404, no such input",
    "None": "not ended",
}
FEW_CALLS = "the downstream is hardly called while it is down"
# With fewer than this many requests per caller, a run does not show that all callers are used.
LARGE_ENOUGH = 10
FINAL = {"succeeded": "SUCCEEDED", "dead-lettered": "DEAD_LETTERED"}  # in the ledger


@dataclass(frozen=True)
class Parameters:
    """`outage`: there is one."""

    requests: int
    seed: int
    scale: float
    workers: int
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
        calls = [ended(call) for call in self.records.calls]
        ends = [manifest.at for manifest in self.records.manifests] + [message.sent for message in self.records.dead]
        return max(calls + ends + [each.sent for each in self.outcomes])

    @property
    def most_callers(self) -> int:
        """A caller counts from its request to its answer, or until it closes the connection."""
        calls = [(call.began, self.end if call.ended is None else call.ended) for call in self.records.calls]
        return max((callers for _, callers in weighted_steps((each, 1) for each in calls)), default=0)

    @property
    def in_outage(self) -> list[Call]:
        """The calls that began in the outage."""
        outage = self.records.outage
        return [call for call in self.records.calls if outage and outage.begins <= call.began < outage.ends]

    @property
    def after_outage(self) -> list[Call]:
        """The calls that began after it, without those of requests that cannot succeed."""
        outage, calls = self.records.outage, self.records.calls
        return [call for call in calls if outage and call.began >= outage.ends and call.answer != "404"]


def ended(call: Call) -> float:
    """When a call ended; its beginning while it lasts."""
    return call.began if call.ended is None else call.ended


def tally(values: Iterable[Any]) -> dict[str, int]:
    """How often each value occurs, as text, in order (9 before 10)."""
    counts = Counter(map(str, values))
    return {name: counts[name] for name in sorted(counts, key=lambda name: (len(name), name))}


def build(parameters: Parameters, records: Records) -> Outcome:
    """The report of one run. At least one request must have been sent."""
    evidence = Evidence(parameters, records, *request_outcomes(records))
    outcomes, end = evidence.outcomes, evidence.end
    origin = min(each.sent for each in outcomes)
    checks = [judge(evidence) for judge in (*CHECKS, *(OUTAGE_CHECKS if records.outage else ()))]
    figures: dict[str, Any] = {"ended": tally(each.end for each in outcomes)}
    for kind in KINDS:
        some = [each for each in outcomes if each.request.kind == kind]
        figures[f"{kind} requests"] = tally(each.end for each in some)
        figures[f"{kind}, by attempts"] = {f"in {n}": count for n, count in tally(e.attempts for e in some).items()}
    figures["calls by their answer"] = tally(CALLS.get(str(call.answer), call.answer) for call in records.calls)
    figures["most concurrent callers"] = f"{evidence.most_callers} of {parameters.workers}"
    if outage := records.outage:
        figures["outage"] = f"from {since(outage.begins, origin)} to {since(outage.ends, origin)} s"
        figures["calls in the outage"] = len(evidence.in_outage)
        first = min((ended(each) for each in evidence.after_outage if each.answer == "200"), default=None)
        figures["first success after it"] = since(first, outage.ends)
    figures["total time"] = since(end, origin)
    return Outcome(parameters, origin, checks, figures)


def all_succeeded(run: Evidence) -> CheckResult:
    """R1, R2: each request has one effect, its manifest."""
    able = [each for each in run.outcomes if each.request.kind != "poison"]
    problems = {
        "not published": [each.name for each in able if not each.manifests],
        "published more than once": [each.name for each in able if len(each.manifests) > 1],
        "dead-lettered": [f"{each.name} ({each.dead[0].code})" for each in able if each.dead],
        "published although poison": [each.name for each in run.poison if each.manifests],
    }
    finding = f"{len(able)} of {len(able)} published, once each"
    return check_none("each request that can succeed succeeds once", problems, finding)


def poison_has_one_attempt(run: Evidence) -> CheckResult:
    """R3, R4: one attempt and call, besides those that the outage failed, and one dead letter with the history."""
    poison = run.poison
    problems = {
        "not one dead letter": [f"{each.name} ({len(each.dead)})" for each in poison if len(each.dead) != 1],
        "without its history": [
            f"{each.name} ({message.code}, {message.reason})"
            for each in poison
            for message in each.dead
            if not _has_history(each, message)
        ],
        "tried again": [f"{each.name} ({each.attempts})" for each in poison if each.attempts > 1 + each.refused],
        "called again": [f"{each.name} ({len(each.calls)})" for each in poison if len(each.calls) > 1 + each.refused],
    }
    name = "poison has one attempt, and one dead letter with its history"
    return check_none(name, problems, counted(len(poison), "dead letter"), shown=bool(poison))


def _has_history(outcome: RequestOutcome, message: DeadLetter) -> bool:
    """An invalid message has no attempts. Of any other, the outage may have failed attempts before the last one."""
    poison, last = outcome.request.poison, 1 + outcome.refused
    if not poison or message.code != poison.code or poison.reason not in (message.reason or ""):
        return False
    history = [(each.get("attempt"), poison.reason in each.get("error", "")) for each in message.history or []]
    wanted = [(number, number == last) for number in range(1, last + 1)] if outcome.request.is_message else []
    return history == wanted


def ledger_agrees(run: Evidence) -> CheckResult:
    """The ledger against three independent records."""
    wrong = [f"{each.name} ({what})" for each in run.outcomes if (what := _disagreement(each))]
    rows = counted(sum(each.row is not None for each in run.outcomes), "row")
    problems = {"disagree": wrong, "of no request": run.strays}
    return check_none("the ledger agrees with S3, the dead letters and the downstream", problems, rows)


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


def nothing_left(run: Evidence) -> CheckResult:
    """R1: no message, schedule or open row is left."""
    rows = [each.row for each in run.outcomes if each.row]
    problems = {
        "left": [f"{count} {what}" for what, count in run.records.left.items() if count],
        "not final": [f"{row.request_id} ({row.status})" for row in rows if row.status not in FINAL.values()],
    }
    return check_none("no request is left waiting", problems, f"0 {', 0 '.join(run.records.left)}")


def never_above(run: Evidence) -> CheckResult:
    most, callers = run.most_callers, run.parameters.workers
    name = f"never more than {callers} concurrent callers"
    finding = f"at most {most}, in {counted(len(run.records.calls), 'call')}"
    if most < callers and len(run.outcomes) <= LARGE_ENOUGH * callers:
        return check(name, None, f"{finding}; too few requests to show it")
    return check(name, most == callers, finding)  # in a large run fewer callers are an error


CHECKS = (all_succeeded, poison_has_one_attempt, ledger_agrees, never_above, nothing_left)


def few_calls(run: Evidence) -> CheckResult:
    """At most the calls that open the breaker, and one for each time that a probe is due.

    The threshold of consecutive failures opens it. At that time at most callers - 1 others are under way, and between
    the last success and its report each other caller may have begun one call. A call from before the outage that
    succeeds in it begins the series again.
    """
    outage, breaker = run.records.outage, POLICY["downstream"]["breaker"]
    if outage is None:
        return check(FEW_CALLS, None, "no outage")
    late = [
        each
        for each in run.records.calls
        if each.began < outage.begins <= ended(each) < outage.ends and each.answer == "200"
    ]
    until_open = breaker["failure_threshold"] + 2 * (run.parameters.workers - 1)
    allowed, passed, failed = until_open * (1 + len(late)), 0.0, 0
    while (passed := passed + least_wait(breaker["recovery_seconds"], failed)) < outage.ends - outage.begins:
        allowed, failed = allowed + 1, failed + 1
    made = len(run.in_outage)
    finding = f"{counted(made, 'call')} in {outage.ends - outage.begins:.0f} s, {allowed} allowed"
    return check(FEW_CALLS, made <= allowed if made else None, finding)


def least_wait(recovery: float, failed_probes: int) -> float:
    """The shortest wait for the next probe, in seconds."""
    return (1 - PROBE_JITTER) * recovery * min(1.0, FIRST_PROBE * PROBE_GROWTH**failed_probes)


def recovery_found(run: Evidence) -> CheckResult:
    """The first probe of a request that can succeed succeeds."""
    name = "the first probe after the outage succeeds"
    if run.records.outage is None or not run.after_outage:
        return check(name, False, "no call after the outage")
    first = run.after_outage[0]
    return check(
        name, first.answer == "200", f"{first.answer}, {ended(first) - run.records.outage.ends:.1f} s after it"
    )


OUTAGE_CHECKS = (few_calls, recovery_found)
