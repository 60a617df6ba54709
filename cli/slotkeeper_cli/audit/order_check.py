"""The check of a history of work that requests start in the order of their places (S5). Pure.

Order is that of grants, which the rows have: the starts of one grant differ by milliseconds, in any order.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.work_history import (
    REQUESTS,
    LimitSteps,
    WorkHistory,
    grant_of,
    label_of,
    limit_steps,
)
from slotkeeper_cli.formatting import count, iso


def in_order(history: WorkHistory) -> CheckResult:
    """S5: no request is granted a slot before another one that was in front of it in the queue.

    A request is certainly in the queue `bounds.intake` after one that was sent later, of any process, has started or
    ended: so the intake was not disturbed then. One that a dispatch put back, or whose workflow was returned, is in it
    from that write on. A request whose weight was above the limit keeps no other one back. Starts whose grant was not
    recorded are left out. A starter that dies may leave no note of what it put back: if a change of `grants` between
    the two grants is not known, it is not decided.
    """
    claim = "requests start in the order of their priorities and places"
    found, starts = Found(unknown=history.lacks(REQUESTS)), 0
    queued_at = _queued_at(history)
    for name in history.rows_of:
        granted = sorted((each for each in history.rows_of[name] if each.granted), key=attrgetter("granted"))
        starts += len(granted)
        _find_overtaken(history, name, granted, queued_at, found)
    text = count(starts, "recorded grant")
    return conclude("order", claim, found, text, {"grants": starts}, shown=starts > 1)


def _queued_at(history: WorkHistory) -> Callable[[RequestRow], float]:
    """From when on a request was certainly in its queue, unless it had left it."""
    rows = sorted(history.rows, key=lambda each: each.sent)
    seen: list[float] = []  # of each row, when one that was sent after it was seen first
    earliest = math.inf
    for row in reversed(rows):
        seen.append(earliest)
        earliest = min(earliest, row.started or row.ended or math.inf)
    seen.reverse()
    times = [row.sent for row in rows]
    return lambda row: max(row.sent, seen[bisect_left(times, row.sent)]) + history.bounds.intake


def _find_overtaken(
    history: WorkHistory,
    name: str,
    granted: list[RequestRow],
    queued_at: Callable[[RequestRow], float],
    found: Found,
) -> None:
    """The grants that came before that of a request in front. `granted`: in the order of the grants."""
    limits, process = limit_steps(history, name), history.processes.get(name)
    holders = process.holders if process else {}
    # What is queued and has a holder was granted a slot, and a dispatch has still to note it.
    waiting = (each for each in history.rows_of[name] if each.granted or (each.place and each.execution not in holders))
    arriving = deque(sorted(waiting, key=queued_at))
    queue: list[tuple[str, str, RequestRow]] = []  # by place
    for row in granted:
        at = row.started or 0.0
        while arriving and queued_at(arriving[0]) < at:
            each = arriving.popleft()
            heapq.heappush(queue, (each.placed, each.execution, each))
        passed = []
        while queue and queue[0][0] < row.placed:
            entry = heapq.heappop(queue)
            each = entry[2]
            if each.granted and each.granted <= row.granted:
                continue
            passed.append(entry)
            if not _is_excused(history, each, row, limits):
                last = grant_of(each) or (process.grants if process else 0)
                text = f"{label_of(row)} was granted a slot before {label_of(each)}, which was sent at {iso(each.sent)}"
                if history.all_grants_known(name, grant_of(row), last):
                    found.fails.append(text)
                else:
                    found.unknown.append(f"{text}, unless it had a slot meanwhile that was taken back")
                break
        for entry in passed:
            heapq.heappush(queue, entry)


def _is_excused(history: WorkHistory, passed: RequestRow, row: RequestRow, limits: LimitSteps) -> bool:
    """Whether a request may start before one in front of it: that one was not queued then, or perhaps blocked."""
    if passed.put_back is not None and grant_of(row) <= passed.put_back:
        return True
    at = row.started or 0.0
    least = limits.least(at - history.bounds.reservation, at)
    return least is None or history.weight(passed.execution) > least
