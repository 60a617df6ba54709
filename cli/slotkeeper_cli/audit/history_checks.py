"""Checks of a history of work: the limit (S1), lost requests (S3) and repeated work (S7). Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.work_history import (
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    REQUESTS,
    STARTED,
    UNKNOWN,
    Attempt,
    LimitSteps,
    WholeRun,
    WorkHistory,
    WorkInterval,
    acts_of,
    label_of,
    limit_steps,
    must_be_listed,
)
from slotkeeper_cli.formatting import count, iso

MAX_EXAMPLES = 10
# Seconds. Records have milliseconds.
_CLOCK = 0.01


class Result(StrEnum):
    """What the records state about a guarantee."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class CheckResult:
    """One check of a history.

    Attributes:
        id: one word, by which callers name the check.
        claim: the guarantee in a sentence.
        finding: what the records state, in a sentence.
        numbers: the same as data.
        examples: what fails, at most MAX_EXAMPLES.
    """

    id: str
    claim: str
    result: Result
    finding: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    examples: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        return {**vars(self), "numbers": dict(self.numbers), "examples": list(self.examples)}


@dataclass
class Found:
    """What one check has found so far: what fails, and what cannot be decided."""

    fails: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def conclude(
    name: str, claim: str, found: Found, finding: str, numbers: Mapping[str, Any], *, shown: bool = True
) -> CheckResult:
    """The result: what fails counts more than what cannot be decided, and that more than what holds."""
    result = Result.HOLDS if shown else Result.NOT_SHOWN
    if found.unknown:
        result = Result.NOT_SHOWN
        finding = "; ".join(filter(None, [finding, *first_of(found.unknown, 3)]))
    if found.fails:
        result = Result.FAILS
        finding = f"{count(len(found.fails), 'violation')}; {finding}"
    return CheckResult(name, claim, result, finding, numbers, first_of(found.fails, MAX_EXAMPLES))


def first_of(texts: Sequence[str], most: int) -> list[str]:
    more = len(texts) - most
    return [*texts[:most], *([f"and {more:,} more"] if more > 0 else [])]


def never_above(history: WorkHistory) -> CheckResult:
    """S1 and S1b: never more weight at work than the limit at which it was admitted.

    The last of some concurrent requests was admitted while the others held their slots, after the last one was admitted
    `bounds.reservation` before its start at the earliest. So their weight is at most the highest limit since then. A
    limit that is lowered below what runs is no violation: it admits nothing.

    Times of one kind of record are compared only with each other. A time in whole seconds may have been rounded up or
    down, so it counts for a second less at its end: overlaps shorter than that are hidden, and never invented. Weights
    are those of the rows. Leases leave no record.

    If the versions of the item are known, all that ran did so while its execution held a confirmed slot.
    """
    claim = "never more weight at work than the limit then in force"
    lacking = history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS, "SlotTable")
    found = Found(unknown=lacking or history.lacks_work())
    peaks: dict[str, dict[str, Any]] = {}
    kinds = _by_kind(history)
    for name in history.names:
        limits = limit_steps(history, name)
        for kind, work in kinds.get(name, {}).items():
            if history.versions_of(name):
                found.fails += _outside(history, work)
            peak = _peak(history, name, kind, work, limits, found)
            if peak:
                peaks.setdefault(name, {})[kind] = peak
    others = Counter(each.kind for each in history.work if not each.execution)
    text = [
        f"{name}: at most {peak['weight']:,} of {_limit_text(peak['limit'])} ({kind}s)"
        for name, of in peaks.items()
        for kind, peak in of.items()
    ]
    text += [f"{count(number, kind)} not started by Slotkeeper" for kind, number in others.items()]
    numbers = {"processes": peaks, "not_started_by_slotkeeper": dict(others)}
    return conclude("limit", claim, found, "; ".join(text) or "nothing ran", numbers, shown=bool(peaks))


def _limit_text(limit: int | None) -> str:
    return "an unknown limit" if limit is None else f"{limit:,}"


def _by_kind(history: WorkHistory) -> dict[str, dict[str, list[WorkInterval]]]:
    """What ran, by process and kind."""
    found: dict[str, dict[str, list[WorkInterval]]] = defaultdict(lambda: defaultdict(list))
    for each in history.work:
        if each.execution:
            found[each.process][each.kind].append(each)
    return found


def _peak(
    history: WorkHistory, name: str, kind: str, work: Sequence[WorkInterval], limits: LimitSteps, found: Found
) -> dict[str, Any]:
    """The most weight at the same time in the period and the limit then; what is above goes into `found`."""
    lowest = limits.least(-math.inf, math.inf)
    best: dict[str, Any] = {}
    is_unknown = above = False
    for at, active in _starts(work, history.now):
        if not history.since <= at <= history.until:
            continue
        weight = sum(history.weight(each.execution) for each in active)
        limit = lowest
        if lowest is None or weight > min(lowest, best.get("weight", 0)):
            last = max(_admitted_by(history, one) for one in active)
            earlier = 0.0 if history.versions_of(name) else history.bounds.reservation
            limit = limits.most(last - earlier, last)
        if weight > best.get("weight", 0):
            best = {"weight": weight, "limit": limit, "at": iso(at), "count": len(active)}
        is_above = limit is not None and weight > limit
        if is_above and not above:
            found.fails.append(_above(history, name, kind, at, weight, limit or 0, active))
        above = is_above
        is_unknown |= limit is None
    found.unknown += [f"the limit of {name} is not known at every time"] * is_unknown
    return best


def _starts(work: Sequence[WorkInterval], now: float) -> Iterator[tuple[float, list[WorkInterval]]]:
    """Each certain start, by time, with all that certainly ran then."""
    events = list[tuple[float, bool, int]]()
    for number, each in enumerate(work):
        start, end = each.certain(now)
        if start < end:
            events += [(start, True, number), (end, False, number)]
    active: dict[int, WorkInterval] = {}
    for at, is_start, number in sorted(events):
        if is_start:
            active[number] = work[number]
            yield at, list(active.values())
        else:
            del active[number]


def _outside(history: WorkHistory, works: Sequence[WorkInterval]) -> list[str]:
    """S1b: what ran while its execution held no confirmed slot, by the versions of the item."""
    found = []
    for work in works:
        start, end = work.certain(history.now)
        held = history.holdings.get(work.execution, ())
        if not any(each.confirmed <= start + _CLOCK and end <= each.freed + _CLOCK for each in held):
            found.append(f"{work.execution}: a {work.kind} from {iso(start)} to {iso(end)} without a confirmed slot")
    return found


def _admitted_by(history: WorkHistory, work: WorkInterval) -> float:
    """An instant by which its request had been admitted; exactly then if the versions of the item are known."""
    if taken := [each.taken for each in history.holdings.get(work.execution, ()) if each.taken <= work.started]:
        return taken[-1]
    attempt = history.by_execution.get(work.execution)
    return attempt.started if attempt else work.started


def _above(
    history: WorkHistory, name: str, kind: str, at: float, weight: int, limit: int, active: Sequence[WorkInterval]
) -> str:
    newest = sorted(active, key=lambda each: each.started)[-3:]
    text = (
        f"{name}: {weight:,} of {limit:,} at {iso(at)} by {kind}s, the last of {', '.join(e.execution for e in newest)}"
    )
    forced = [each for each in acts_of(history, name) if _is_override(each.action, each.fields) and each.at <= at]
    return f"{text}; after {forced[-1].action} at {iso(forced[-1].at)} by {forced[-1].by}" if forced else text


def _is_override(action: str, fields: Mapping[str, Any]) -> bool:
    """Whether an operator's change may let one more run than the limit."""
    return bool(fields.get("forced")) or action == "stack restore" or bool(fields.get("adopt"))


def accounted(history: WorkHistory) -> CheckResult:
    """S3: every request is queued, runs, or has ended as Step Functions states; a returned or redriven one is queued.

    The row of an ended execution ends within `bounds.dead_holder`. In a whole run each message also has a row, or a
    dead-letter message with a reason, and the expected outcome; each end is published, and nothing is left.
    """
    claim = "every request is queued, runs or has ended, as Step Functions states"
    found, ends = Found(unknown=history.lacks(EXECUTIONS, REQUESTS)), Counter[str]()
    following = {(each.process, each.request_id, each.attempt) for each in history.rows}
    for row in history.rows:
        ends[row.state.lower().replace("_", " ")] += 1
        if row.state in ("RETURNED", "REDRIVEN"):
            is_missing = following.isdisjoint({(row.process, row.request_id, n) for n in (row.attempt + 1, UNKNOWN)})
            # The two rows of one transaction may be in different pages, of which one was read before it.
            is_old = (row.ended or 0.0) < history.now - history.bounds.dead_holder
            if is_missing and is_old and not found.unknown:
                found.fails.append(f"{label_of(row)} is {row.state}, and has no next attempt")
        if (why := _differs(history, row)) and not found.unknown:
            found.fails.append(f"{label_of(row)} is {row.state}, and {why}")
    if not found.unknown:
        found.fails += [
            f"{each.label}, which began at {iso(each.started)} and is {each.status}, has no row"
            for each in history.without_row
        ]
    if history.run:
        found.fails += _wrong_run(history, history.run)
    text = ", ".join(f"{number:,} {end}" for end, number in sorted(ends.items(), key=lambda each: (-each[1], each[0])))
    return conclude("accounted", claim, found, text or "no request", {"ends": ends}, shown=bool(ends))


def _differs(history: WorkHistory, row: RequestRow) -> str:
    """How Step Functions' lists differ from a row; empty if that is not certain.

    A workflow that was aborted after its work, or whose child is too large to be read, has not succeeded although its
    request has. One that an operator redrove may succeed after its request was redriven too.
    """
    attempt = history.by_execution.get(row.execution)
    if attempt is None:
        is_missing = must_be_listed(row, history.until) and history.now - _last(row) > history.bounds.dead_holder
        return "Step Functions has no execution of it" if is_missing else ""
    is_of_another = attempt.started < row.sent  # the request was rejected, since its name was taken
    if attempt.stopped is None or not attempt.is_closed or is_of_another:
        return ""
    at = f"its execution ended {attempt.status} at {iso(attempt.stopped)}"
    if row.ended is None:
        return at if history.now - attempt.stopped > history.bounds.dead_holder else ""
    return at if attempt.status == "SUCCEEDED" and row.state not in ("SUCCEEDED", "REDRIVEN") else ""


def _last(row: RequestRow) -> float:
    return row.ended or row.started or row.sent


def _wrong_run(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    """S3 of a whole run."""
    if run.queued:
        yield f"{count(run.queued, 'message')} left on RequestQueue"
    yield from (f"{each.label} has not ended" for each in history.attempts if not each.is_closed)
    sent = {each.execution for each in run.sendings}
    for row in history.rows:
        if row.ended is None:
            yield f"{label_of(row)} is {row.state} at the end"
        elif row.open is not None:
            yield f"{label_of(row)} is {row.state}, and its end is not published"
        if row.attempt == 1 and row.execution not in sent:
            yield f"{label_of(row)} was not sent"
    for message in run.dead_letters:
        if not message.code or message.code == "none" or not message.reason:
            yield f"message {message.source} is in RequestDeadLetterQueue without a reason"
    yield from _wrong_outcomes(history, run)


def _wrong_outcomes(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    dead = Counter(each.source for each in run.dead_letters)
    codes = {each.source: each.code for each in run.dead_letters}
    last: dict[tuple[str, str], RequestRow] = {}
    for row in sorted(history.rows, key=lambda each: each.attempt):
        last[row.process, row.request_id] = row
    for sending in run.sendings:
        first = history.row(sending.execution)
        if first is None and sending.message_id not in dead:
            yield f"{sending.execution}, sent at {iso(sending.at)}: neither a row nor a dead-letter message"
            continue
        if dead[sending.message_id] > (first is None):
            yield f"{sending.execution} was dead-lettered {'although it has a row' if first else 'twice'}"
        ended = last[first.process, first.request_id] if first else None
        found = ended.state if ended else codes[sending.message_id]
        if ended and ended.state == "REJECTED":
            found = ended.code
        expected = {"SUCCEEDED", "FAILED"} if sending.outcome == STARTED else {sending.outcome}
        if sending.outcome and found not in expected | {sending.leaves}:
            yield f"{label_of(ended) if ended else sending.execution} ended {found}, expected {sending.outcome}"


def without_success(history: WorkHistory) -> Iterator[str]:
    """S7 of a whole run: an execution that succeeded has run exactly one thing that did."""
    done = Counter(each.execution for each in history.work if each.succeeded)
    for attempt in history.attempts:
        if attempt.status == "SUCCEEDED" and not done[attempt.execution]:
            yield f"{attempt.label} succeeded, and nothing that it ran did"


def never_again(history: WorkHistory) -> CheckResult:
    """S7: nothing that succeeded ran again, and one execution never has two Glue runs at the same time."""
    claim = "nothing that succeeded ran again"
    found = Found(unknown=history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS) or history.lacks_work())
    by_execution: dict[tuple[str, str], list[WorkInterval]] = defaultdict(list)
    for work in history.work:
        if work.execution:
            by_execution[work.kind, work.execution].append(work)
    repeated = 0
    for (kind, execution), works in by_execution.items():
        for earlier, later in pairwise(sorted(works, key=lambda each: each.started)):
            repeated += 1
            if earlier.succeeded:
                found.fails.append(
                    f"{execution}: a {kind} started at {iso(later.started)}, after one that had succeeded"
                )
            elif later.certain(history.now)[0] < earlier.certain(history.now)[1]:
                found.fails.append(f"{execution}: two {kind}s ran at {iso(later.started)}")
    if history.run and not found.unknown:
        found.fails += without_success(history)
    for attempts in _attempts_of_requests(history):
        for (_, before), (number, after) in pairwise(sorted(attempts.items())):
            # An execution that was redriven may succeed after the next attempt has started.
            if before.status == "SUCCEEDED" and (before.stopped or 0.0) <= after.started:
                found.fails.append(f"{before.label} succeeded, and attempt {number} started at {iso(after.started)}")
    succeeded = sum(each.status == "SUCCEEDED" for each in history.attempts)
    text = f"{succeeded:,} succeeded; {count(repeated, 'further run')} of an execution after one without success"
    numbers = {"succeeded": succeeded, "further_runs": repeated}
    return conclude("once", claim, found, text, numbers, shown=succeeded > 0)


def _attempts_of_requests(history: WorkHistory) -> Iterator[dict[int, Attempt]]:
    """The executions of each request by the number of the attempt.

    Without the requests that several callers have sent with one id: a row does not state its caller.
    """
    requests: dict[tuple[str, str], list[tuple[int, Attempt]]] = defaultdict(list)
    for attempt in history.attempts:
        if row := attempt.row:
            requests[row.process, row.request_id].append((row.attempt, attempt))
    for numbered in requests.values():
        if len(by_number := dict(numbered)) == len(numbered):
            yield by_number
