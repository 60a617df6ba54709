"""The check of a history of work that requests start in the order of their places (S5). Pure.

Order is that of grants, which the rows have: the starts of one grant differ by milliseconds, in any order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from operator import attrgetter

from slotkeeper.slots.request_table import granted_as
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.history_checks import CheckResult, Found, conclude
from slotkeeper_cli.audit.work_history import REQUESTS, LimitSteps, WorkHistory, label_of, limit_steps
from slotkeeper_cli.formatting import count, iso


def in_order(history: WorkHistory) -> CheckResult:
    """S5: no request is granted a slot before another one that was in front of it in the queue.

    A request is certainly in the queue `bounds.intake` after it was sent. One that a dispatch put back, or whose
    workflow was returned, is in it from that write on. A request whose weight was above the limit keeps no other one
    back. Starts whose grant was not recorded are left out, as are requests that waited during a known fault: a starter
    that dies may leave no note of what it put back.
    """
    claim = "requests start in the order of their priorities and places"
    found, starts = Found(unknown=history.lacks(REQUESTS)), 0
    for name in history.rows_of:
        granted = sorted((each for each in history.rows_of[name] if each.granted), key=attrgetter("granted"))
        starts += len(granted)
        found.fails += _overtaken(history, name, granted)
    text = count(starts, "recorded grant")
    return conclude("order", claim, found, text, {"grants": starts}, shown=starts > 1)


def _overtaken(history: WorkHistory, name: str, granted: list[RequestRow]) -> Iterator[str]:
    """The grants that came before that of a request in front. `granted`: in the order of the grants."""
    limits, intake = limit_steps(history, name), history.bounds.intake
    holders = history.processes[name].holders if name in history.processes else {}
    # What is queued and has a holder was granted a slot, and a dispatch has still to note it.
    waiting = (each for each in history.rows_of[name] if each.granted or (each.place and each.execution not in holders))
    arriving = deque(sorted(waiting, key=lambda each: each.sent))
    queue: list[tuple[str, str, RequestRow]] = []  # by place
    for row in granted:
        at = row.started or 0.0
        while arriving and arriving[0].sent + intake < at:
            each = arriving.popleft()
            heapq.heappush(queue, (each.placed, each.execution, each))
        passed = []
        while queue and queue[0][0] < row.placed:
            entry = heapq.heappop(queue)
            each = entry[2]
            if each.granted and each.granted <= row.granted:
                continue
            passed.append(entry)
            if each.sent + intake < at and not _is_excused(history, each, row, limits):
                yield f"{label_of(row)} was granted a slot before {label_of(each)}, which was sent at {iso(each.sent)}"
                break
        for entry in passed:
            heapq.heappush(queue, entry)


def _is_excused(history: WorkHistory, passed: RequestRow, row: RequestRow, limits: LimitSteps) -> bool:
    """Whether a request may start before one in front of it: that one was not queued then, or perhaps blocked."""
    if passed.put_back is not None and row.granted <= granted_as(passed.put_back, 99):
        return True
    at = row.started or 0.0
    disturbances = history.run.disturbances if history.run else ()
    if any(each.process in ("", row.process) and each.at < at and each.until > passed.sent for each in disturbances):
        return True
    least = limits.least(at - history.bounds.reservation, at)
    return least is None or history.weight(passed.execution) > least
