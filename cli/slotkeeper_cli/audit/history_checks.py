"""Checks of a history of work: the limits (S1, S12), lost requests (S3) and repeated work (S7). Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.intervals import Interval
from slotkeeper_cli.audit.work_history import (
    CHILDREN,
    EXECUTIONS,
    GLUE_RUN,
    GLUE_RUNS,
    NO_LIMIT,
    REQUESTS,
    UNKNOWN,
    KeyLimits,
    LimitSteps,
    WorkHistory,
    WorkInterval,
    acts_of,
    label_of,
    limit_steps,
    must_be_listed,
)
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.formatting import count, iso

# The work of a process whose target has changed from a job to a state machine, or back.
BOTH_KINDS = "run of either kind"
_Ran = tuple[Interval, WorkInterval]  # when it certainly ran


def never_above(history: WorkHistory) -> CheckResult:
    """S1 and S1b: never more weight at work than the limit at which it was admitted.

    The last of some concurrent requests was admitted while the others held their slots, after the last one was admitted
    `bounds.reservation` before its start at the earliest. So their weight is at most the highest limit since then. A
    limit that is lowered below what runs is no violation: it admits nothing.

    A time in whole seconds may have been rounded up or down, so it counts for a second less at its end. A Glue run is
    compared with children without the first and the last minute, since the clocks differ. So shorter overlaps are
    hidden, and none is invented. Weights are those of the rows. Leases leave no record.

    A child that an operator redrove is left out, and nothing holds: it runs outside of any slot at first, and how long
    it ran before is not listed.
    """
    claim = "never more weight at work than the limit then in force"
    found = _unknown_work(history)
    peaks: dict[str, dict[str, Any]] = {}
    for name, kinds in _by_kind(history).items():
        limits = limit_steps(history, name)
        for kind, ran in kinds.items():
            if peak := _peak(history, name, kind, ran, limits, found):
                peaks.setdefault(name, {})[kind] = peak
    others = Counter(each.kind for each in history.work if not each.execution)
    text = []
    for name, of in peaks.items():
        for kind, peak in of.items():
            limit = "an unknown limit" if peak["limit"] is None else f"{peak['limit']:,}"
            text.append(f"{name}: at most {peak['weight']:,} of {limit} ({_plural(kind)})")
    text += [f"{count(number, kind)} not started by Slotkeeper" for kind, number in others.items()]
    numbers = {"processes": peaks, "not_started_by_slotkeeper": dict(others)}
    return conclude("limit", claim, found, "; ".join(text) or "nothing ran", numbers, shown=bool(peaks))


def never_above_of_key(history: WorkHistory) -> CheckResult:
    """S12: never more weight of a key at work than the limit of the key at which it was admitted, as `never_above`.

    The requests without a key have one limit together. Leases have no key, and count for none.
    """
    claim = "never more of a key at work than its limit then in force"
    found, peaks = _unknown_work(history), list[dict[str, Any]]()
    for name, kinds in _by_kind(history).items():
        limits, of_keys = KeyLimits(history, name), defaultdict[tuple[str, str], list[_Ran]](list)
        for kind, ran in kinds.items() if limits.exist else ():
            for each in ran:
                if row := history.row(each[1].execution):
                    of_keys[row.key, kind].append(each)
        for (key, kind), ran in of_keys.items():
            what = f"{name}, {of_key(key)}"
            peak = _peak(history, what, kind, ran, limits.of(key), found)
            if peak and peak["limit"] not in (None, NO_LIMIT):
                peaks.append({"what": what, "process": name, "key": key or None, **peak})
    peaks.sort(key=lambda each: each["limit"] - each["weight"])
    text = [f"{of['what']}: at most {of['weight']:,} of {of['limit']:,}" for of in peaks[:1]]
    text.append(f"{count(len(peaks), 'key')} with a limit")
    return conclude("keys", claim, found, "; ".join(text), {"fullest": peaks[:1]}, shown=bool(peaks))


def _unknown_work(history: WorkHistory) -> Found:
    redriven = [f"{each.execution} was redriven manually" for each in history.work if each.redriven]
    lacking = history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS, "SlotTable")
    return Found(unknown=[*(lacking or history.lacks_work()), *redriven])


def _plural(kind: str) -> str:
    return "runs of either kind" if kind == BOTH_KINDS else f"{kind}s"


def _by_kind(history: WorkHistory) -> dict[str, dict[str, list[_Ran]]]:
    """The work, by process and kind; if a process has had two kinds, also both together."""
    found: dict[str, dict[str, list[_Ran]]] = defaultdict(lambda: defaultdict(list))
    for each in history.work:
        if each.execution and not each.redriven:
            found[each.process][each.kind].append((each.certain(history.now), each))
    for kinds in found.values():
        if len(kinds) > 1:
            margins = {GLUE_RUN: CLOCK_DIFFERENCE_SECONDS}  # its clock is another one
            kinds[BOTH_KINDS] = [
                ((start + margins.get(kind, 0.0), end - margins.get(kind, 0.0)), each)
                for kind, ran in list(kinds.items())
                for (start, end), each in ran
            ]
    return found


def _peak(
    history: WorkHistory, what: str, kind: str, ran: Sequence[_Ran], limits: LimitSteps, found: Found
) -> dict[str, Any]:
    """The most weight at the same time in the period and the limit then; violations go into `found`."""
    lowest = limits.least(-math.inf, math.inf)
    best: dict[str, Any] = {}
    is_unknown = above = False
    for at, active in _starts(ran):
        if not history.since <= at <= history.until:
            continue
        weight = sum(history.weight(each.execution) for each in active)
        limit = lowest
        if lowest is None or weight > min(lowest, best.get("weight", 0)):
            # By these instants their requests had been admitted.
            last = max(history.by_execution.get(one.execution, one).started for one in active)
            limit = limits.most(last - history.bounds.reservation, last)
        if weight > best.get("weight", 0):
            best = {"weight": weight, "limit": limit, "at": iso(at), "count": len(active)}
        is_above = limit is not None and weight > limit
        if is_above and not above:
            found.fails.append(_above(history, what, kind, at, weight, limit or 0, active))
        above = is_above
        is_unknown |= limit is None
    found.unknown += [f"the limit of {what} is not known at every time"] * is_unknown
    return best


def _starts(ran: Sequence[_Ran]) -> Iterator[tuple[float, list[WorkInterval]]]:
    """Each certain start, by time, with all that certainly ran then."""
    events = list[tuple[float, bool, int]]()
    for number, ((start, end), _) in enumerate(ran):
        if start < end:
            events += [(start, True, number), (end, False, number)]
    active: dict[int, WorkInterval] = {}
    for at, is_start, number in sorted(events):
        if is_start:
            active[number] = ran[number][1]
            yield at, list(active.values())
        else:
            del active[number]


def _above(
    history: WorkHistory, what: str, kind: str, at: float, weight: int, limit: int, active: Sequence[WorkInterval]
) -> str:
    newest = ", ".join(each.execution for each in sorted(active, key=lambda each: each.started)[-3:])
    text = f"{what}: {weight:,} of {limit:,} at {iso(at)} by {_plural(kind)}, the last of {newest}"
    # An operator's changes that may let one more run than the limit.
    acts = [(act, act.fields) for act in acts_of(history, active[0].process) if act.at <= at]
    forced = [act for act, of in acts if act.action == "stack restore" or of.get("forced") or of.get("adopt")]
    return f"{text}; after {forced[-1].action} at {iso(forced[-1].at)} by {forced[-1].by}" if forced else text


def accounted(history: WorkHistory) -> CheckResult:
    """S3: every request is queued, runs, or has ended as Step Functions states; a returned or redriven one is queued.

    The row of an ended execution ends within `bounds.dead_holder`.
    """
    claim = "every request is queued, runs or has ended, as Step Functions states"
    found, ends = Found(unknown=history.lacks(EXECUTIONS, REQUESTS)), Counter[str]()
    following = {(each.process, each.request_id, each.attempt) for each in history.rows}
    for row in history.rows:
        ends[row.state.lower().replace("_", " ")] += 1
        if row.state in ("RETURNED", "REDRIVEN"):
            is_missing = following.isdisjoint({(row.process, row.request_id, n) for n in (row.attempt + 1, UNKNOWN)})
            # The two rows of one transaction may be in different pages, of which one was read before it. By another
            # clock the next attempt may have ended before the period.
            first, last = history.since + CLOCK_SKEW_SECONDS, history.now - history.bounds.dead_holder
            is_old = first <= (row.ended or 0.0) < last
            if is_missing and is_old and not found.unknown:
                found.fails.append(f"{label_of(row)} is {row.state}, and has no next attempt")
        if (why := _differs(history, row)) and not found.unknown:
            found.fails.append(f"{label_of(row)} is {row.state}, and {why}")
    if not found.unknown:
        found.fails += [
            f"{each.label}, which began at {iso(each.started)} and is {each.status}, has no row"
            for each in history.without_row
        ]
    text = ", ".join(f"{number:,} {end}" for end, number in sorted(ends.items(), key=lambda each: (-each[1], each[0])))
    return conclude("accounted", claim, found, text or "no request", {"ends": ends}, shown=bool(ends))


def _differs(history: WorkHistory, row: RequestRow) -> str:
    """How Step Functions' lists differ from a row; empty if that is not certain.

    A workflow that was aborted after its work, or whose child is too large to be read, has not succeeded although its
    request has. One that an operator redrove may succeed after its request was redriven too.
    """
    attempt = history.by_execution.get(row.execution)
    if attempt is None:
        last = row.ended or row.started or row.sent
        is_missing = must_be_listed(row, history.until) and history.now - last > history.bounds.dead_holder
        return "Step Functions has no execution of it" if is_missing else ""
    is_of_another = attempt.started < row.sent  # the request was rejected, since its name was taken
    if attempt.stopped is None or not attempt.is_closed or is_of_another:
        return ""
    at = f"its execution ended {attempt.status} at {iso(attempt.stopped)}"
    if row.ended is None:
        return at if history.now - attempt.stopped > history.bounds.dead_holder else ""
    return at if attempt.status == "SUCCEEDED" and row.state not in ("SUCCEEDED", "REDRIVEN") else ""


def never_again(history: WorkHistory) -> CheckResult:
    """S7: nothing that succeeded ran again, and one execution never has two Glue runs at the same time.

    Several callers may have sent one id: an attempt is of the same request if it has its message.
    """
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
    attempts: dict[tuple[str, str], list[RequestRow]] = defaultdict(list)
    for row in sorted(history.rows, key=lambda each: each.attempt):
        attempts[row.process, row.request_id].append(row)
    for rows in attempts.values():
        done: RequestRow | None = None
        for row in rows:
            if done and row.started and row.message_id in ("", done.message_id):
                text = f"{label_of(done)} succeeded, and attempt {row.attempt} started at {iso(row.started)}"
                if row.message_id:
                    found.fails.append(text)
                else:
                    found.unknown.append(f"{text}, perhaps of another caller")
            done = row if row.state == "SUCCEEDED" else done
    succeeded = sum(each.status == "SUCCEEDED" for each in history.attempts)
    text = f"{succeeded:,} succeeded; {count(repeated, 'further run')} of an execution after one without success"
    numbers = {"succeeded": succeeded, "further_runs": repeated}
    return conclude("once", claim, found, text, numbers, shown=succeeded > 0)
