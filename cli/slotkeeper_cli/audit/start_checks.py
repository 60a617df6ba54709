"""The checks of a history of work that requests start in the order of their places (S5), and by the rate (S11). Pure.

Order is that of grants, which the rows have: the starts of one grant differ by milliseconds, in any order.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.queued import rank_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.work_history import (
    AFTER_LINE,
    EXECUTIONS,
    RATE_CHANGES,
    REQUESTS,
    KeyLimits,
    WorkHistory,
    acts_of,
    grant_of,
    label_of,
    limit_steps,
)
from slotkeeper_cli.formatting import count, duration, iso


def in_order(history: WorkHistory) -> CheckResult:
    """S5: no request is granted a slot before another one that was in front of it in the queue.

    In front are earlier places of the same key, and of higher priorities: of another key only if no key has had a
    limit, since it may have been at it. The turns of keys are not checked here: of a run they are
    (dev/judge/grant_order.py).

    A request is in the queue `bounds.intake` after it was sent, or, from the write of a put back or a return on. A
    request whose weight was above the limit keeps no other one back. Starts whose grant was not recorded are left out.

    It is not decided if the request in front may not have been in the queue. Messages may have been received late,
    unless one that was sent after it, of any process, has started or ended `bounds.intake` before. And a starter that
    dies may leave no note of the reservations that it put back, unless all changes of `grants` between the two grants
    are known.
    """
    claim = "requests start in the order of their priorities and places"
    found, starts = Found(unknown=history.lacks(REQUESTS)), 0
    seen_after = _seen_after(history)
    for name in history.rows_of:
        granted = sorted((each for each in history.rows_of[name] if each.granted), key=attrgetter("granted"))
        starts += len(granted)
        _find_overtaken(history, name, granted, seen_after, found)
    text = count(starts, "recorded grant")
    return conclude("order", claim, found, text, {"grants": starts}, shown=starts > 1)


def _seen_after(history: WorkHistory) -> Callable[[RequestRow], float]:
    """When the first request that was sent after a request has started, or ended without a start."""
    rows = sorted(history.rows, key=lambda each: each.sent)
    seen: list[float] = []  # of each row, when one that was sent after it was seen first
    earliest = math.inf
    for row in reversed(rows):
        seen.append(earliest)
        earliest = min(earliest, row.started or row.ended or math.inf)
    seen.reverse()
    times = [row.sent for row in rows]
    return lambda row: seen[bisect_left(times, row.sent)]


def _find_overtaken(
    history: WorkHistory,
    name: str,
    granted: list[RequestRow],
    seen_after: Callable[[RequestRow], float],
    found: Found,
) -> None:
    """The grants that came before that of a request in front. `granted`: in the order of the grants."""
    limits, keys, process = limit_steps(history, name), KeyLimits(history, name), history.processes.get(name)
    intake = history.bounds.intake
    holders = process.holders if process else {}
    # A queued request that has a holder was granted a slot, and a dispatch has still to note it.
    waiting = (each for each in history.rows_of[name] if each.granted or (each.place and each.execution not in holders))
    arriving = deque(sorted(waiting, key=lambda each: each.sent))
    queues: dict[str, list[tuple[str, str, RequestRow]]] = {}  # of each key, by place
    for row in granted:
        at = row.started or 0.0
        while arriving and arriving[0].sent + intake < at:
            each = arriving.popleft()
            heapq.heappush(queues.setdefault(each.key, []), (each.placed, each.execution, each))
        for key, queue in list(queues.items()):
            of_others = "" if keys.exist else rank_of(row.placed)
            bound, passed = row.placed if key == row.key else of_others, []
            while queue and queue[0][0] < bound:
                entry = heapq.heappop(queue)
                each = entry[2]
                if each.granted and each.granted <= row.granted:
                    continue
                passed.append(entry)
                least, of_key = (of.least(at - history.bounds.reservation, at) for of in (limits, keys.of(key)))
                was_put_back = each.put_back is not None and grant_of(row) <= each.put_back
                weight = history.weight(each.execution)
                if was_put_back or any(limit is not None and weight > limit for limit in (least, of_key)):
                    continue
                text = f"{label_of(row)} was granted a slot before {label_of(each)}, which was sent at {iso(each.sent)}"
                last = grant_of(each) or (process.grants if process else 0)
                if least is None or of_key is None:
                    found.unknown.append(f"{text}, unless its weight was above the limit")
                elif seen_after(each) + intake > at:
                    found.unknown.append(f"{text}, unless it was received late")
                elif history.all_grants_known(name, grant_of(row), last):
                    found.fails.append(text)
                else:
                    found.unknown.append(f"{text}, unless it had a slot meanwhile that was taken back")
                break
            for entry in passed:
                heapq.heappush(queue, entry)
            if not queue:
                del queues[key]


def never_faster(history: WorkHistory) -> CheckResult:
    """S11: in no time more starts than the present rate allows, since it was set.

    A start was granted `bounds.reservation` before its execution was recorded at the earliest, so that many seconds,
    and the difference of two clocks, are added to the time from the first start to the last. What exceeds the rate for
    less time is hidden, and none is invented. Leases leave no record.
    """
    claim = "in no time more starts than the rate allows"
    found = Found(unknown=history.lacks(EXECUTIONS, "AuditLogGroup"))
    processes: dict[str, dict[str, Any]] = {}
    for name, process in history.processes.items():
        if process.rate is None:
            continue
        starts = sorted(_starts(history, name))
        slack = history.bounds.reservation + CLOCK_SKEW_SECONDS
        processes[name] = {"rate": str(process.rate), "starts": len(starts)}
        if fastest := _too_fast(starts, process.rate, slack):
            number, began, ended = fastest
            within = f"within {duration(ended - began)} from {iso(began)}"
            found.fails.append(f"{name}: {count(number, 'start')} {within}, its rate is {process.rate}")
    text = "; ".join(f"{name}: {count(of['starts'], 'start')} at {of['rate']}" for name, of in processes.items())
    shown = any(of["starts"] > 1 for of in processes.values())
    return conclude("rate", claim, found, text, {"processes": processes}, shown=shown)


def _starts(history: WorkHistory, name: str) -> Iterator[float]:
    """The starts in the period that were certainly granted at the present rate.

    The item of a process that is added has the time in milliseconds as the first value of `grants`. After a change, the
    start of a request that was sent before it may have been granted at the rate before.
    """
    acts = acts_of(history, name)
    added = max((act.at for act in acts if act.action == "process add"), default=0.0)
    changed = max((act.at + AFTER_LINE for act in acts if act.action in RATE_CHANGES), default=-math.inf)
    for each in history.by_process.get(name, []):
        is_new = each.started >= changed + history.bounds.reservation or (each.row and each.row.sent >= changed)
        is_of_item = not added or (each.row is not None and grant_of(each.row) >= added * 1000)
        if is_new and is_of_item and history.since <= each.started <= history.until:
            yield each.started


def _too_fast(starts: list[float], rate: Rate, slack: float) -> tuple[int, float, float] | None:
    """The first time in which too many of these started: their number, its begin and its end."""
    first, best = 0, math.inf
    for number, at in enumerate(starts):
        # Of the starts before, the one from which the most are allowed until this one.
        ahead = number - at * 1000 / rate.interval
        if ahead < best:
            first, best = number, ahead
        if ahead - best + 1 > rate.burst + slack * 1000 / rate.interval:
            return number - first + 1, starts[first], at
    return None
