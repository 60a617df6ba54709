"""Check S1 and S1b: never more weight at work than the limit. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slotkeeper_cli.check_result import CheckResult, Found, conclude, sample_of
from slotkeeper_cli.formatting import count, iso
from slotkeeper_cli.limit_steps import LimitSteps, acts_of, limit_steps
from slotkeeper_cli.work_history import CHILDREN, EXECUTIONS, GLUE_RUNS, REQUESTS, WorkHistory, WorkInterval


def never_above(history: WorkHistory) -> CheckResult:
    """S1 and S1b: never more weight at work than the limit at which it was admitted.

    The last of some concurrent requests was admitted while the others held their slots, after the last one was admitted
    `bounds.reservation` before its start at the earliest. So their weight is at most the highest limit since then. A
    limit that is lowered below what runs is no violation: it admits nothing.

    Times of one kind of record are compared only with each other. A time in whole seconds may have been rounded up or
    down, so it counts for a second less at its end: overlaps shorter than that are hidden, and never invented. A
    request that was not read counts 1. Leases leave no record.
    """
    claim = "never more weight at work than the limit then in force"
    lacking = history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, "SlotTable")
    found = Found(unknown=lacking or history.lacks_work())
    peaks: dict[str, dict[str, Any]] = {}
    kinds = _by_kind(history)
    for name in history.names:
        limits = limit_steps(history, name)
        for kind, work in kinds.get(name, {}).items():
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
    sample = sample_of(history, EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS)
    return conclude("limit", claim, found, "; ".join(text) or "nothing ran", numbers, shown=bool(peaks), sample=sample)


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
    weights = _Weights(history, name)
    lowest = limits.least(-math.inf, math.inf)
    best: dict[str, Any] = {}
    unknown: dict[str, None] = {}
    above = False
    for at, active in _starts(work, history.now):
        if not history.since <= at <= history.until:
            continue
        sure, assumed = weights.sure(active), weights.assumed(active)
        limit = lowest
        if lowest is None or assumed > min(lowest, best.get("weight", 0)):
            last = max(_admitted_by(history, one) for one in active)
            limit = limits.most(last - history.bounds.reservation, last)
        if assumed > best.get("weight", 0):
            best = {"weight": assumed, "limit": limit, "at": iso(at), "count": len(active)}
        is_above = limit is not None and sure > limit
        if is_above and not above:
            found.fails.append(_above(history, name, kind, at, sure, limit or 0, active))
        above = is_above
        if limit is None:
            unknown[f"the limit of {name} is not known at every time"] = None
        elif assumed > limit and not is_above:
            unknown[f"{name}: weights of {kind}s that were not read may be above the limit"] = None
    if best and weights.are_mixed and any(weights.of(each) is None for each in work):
        unknown[f"{name}: its requests have different weights, and not all were read"] = None
    found.unknown += unknown
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


class _Weights:
    """The weights of a process's work."""

    def __init__(self, history: WorkHistory, name: str) -> None:
        self._attempts = history.by_execution
        process = history.processes.get(name)
        default = process.default_weight if process else 1
        read = {each.weight for each in history.by_process.get(name, []) if each.weight is not None}
        self.are_mixed = not read <= {default}
        self._unread = 1 if self.are_mixed else default

    def of(self, work: WorkInterval) -> int | None:
        """The weight; None if it was not read."""
        attempt = self._attempts.get(work.execution)
        return attempt.weight if attempt else None

    def sure(self, works: Sequence[WorkInterval]) -> int:
        """The least that these may weigh."""
        return sum(self.of(each) or 1 for each in works)

    def assumed(self, works: Sequence[WorkInterval]) -> int:
        """What these weigh, if those that were not read have the default weight, as all that were read have."""
        return sum(self.of(each) or self._unread for each in works)


def _admitted_by(history: WorkHistory, work: WorkInterval) -> float:
    """An instant by which its request had been admitted."""
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
