"""The checks of a history of work that requests start in the order of their places (S5), and by the rate (S11). Pure.

Order is that of grants, which the rows have: the starts of one grant differ by milliseconds, in any order.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.queued import rank_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.free_slot_checks import holding
from slotkeeper_cli.audit.intervals import Interval, Steps, value_at, weighted_steps
from slotkeeper_cli.audit.work_history import (
    AFTER_LINE,
    EXECUTIONS,
    NO_LIMIT,
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

    In front are an earlier one of the same key, each of a higher priority, and of the same priority those of the keys
    whose turn was between that of the grant before and this one: unless their key may have been at its limit.

    A request is in the queue `bounds.intake` after it was sent, or, from the write of a put back or a return on. A
    request whose weight was above the limit keeps no other one back. Starts whose grant was not recorded are left out.

    It is not decided if the request in front may not have been in the queue. Messages may have been received late,
    unless one that was sent after it, of any process, has started or ended `bounds.intake` before. And a starter that
    dies may leave no note of the reservations that it put back, unless all changes of `grants` between the two grants
    are known. Of another key, a turn may also not be recorded.
    """
    claim = "requests start in the order of their priorities and places"
    found, starts = Found(unknown=history.lacks(REQUESTS)), 0
    seen_after = _seen_after(history)
    for name in history.rows_of:
        granted = sorted((each for each in history.rows_of[name] if each.granted), key=attrgetter("granted"))
        starts += len(granted)
        _Order(history, name, granted, seen_after).find_overtaken(found)
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


# The requests of a priority and a key: its rank, whether it is that of no key, and the key.
_Line = tuple[str, bool, str]


def _line_of(row: RequestRow) -> _Line:
    return rank_of(row.placed), not row.key, row.key


class _Order:
    """The grants of one process, in their order, and the requests that were in front of them."""

    def __init__(
        self, history: WorkHistory, name: str, granted: list[RequestRow], seen_after: Callable[[RequestRow], float]
    ) -> None:
        self._history, self._name, self._granted, self._seen_after = history, name, granted, seen_after
        process = history.processes.get(name)
        self._grants = process.grants if process else 0
        self._limits, self._keys = limit_steps(history, name), KeyLimits(history, name)
        self._waiting, self._unrecorded, self._heaviest = list[RequestRow](), list[RequestRow](), Counter[str]()
        holders = process.holders if process else {}
        for row in history.rows_of[name]:
            self._heaviest[row.key] = max(self._heaviest[row.key], history.weight(row.execution))
            # A queued request that has a holder was granted a slot, and a dispatch has still to note it.
            if row.granted or (row.place and row.execution not in holders):
                self._waiting.append(row)
            elif row.state not in ("SKIPPED", "TOO_LATE", "CANCELLED"):
                self._unrecorded.append(row)
        # Of each key with a limit, the weight that was granted until a grant, and freed until a time.
        limited = [(number, row) for number, row in enumerate(granted) if self._keys.apply_to(row.key)]
        self._given = self._sums((row, number) for number, row in limited)
        self._freed = self._sums((row, holding(history, row)[1]) for _, row in limited)
        self._lines: dict[_Line, list[tuple[str, str, RequestRow]]] = {}
        self._turns: list[_Line] = []  # those with requests, in the order of priorities and turns

    def _sums(self, rows: Iterable[tuple[RequestRow, float]]) -> dict[str, Steps]:
        spans: dict[str, list[tuple[Interval, int]]] = defaultdict(list)
        for row, at in rows:
            spans[row.key].append(((at, math.inf), self._history.weight(row.execution)))
        return {key: weighted_steps(of) for key, of in spans.items()}

    def find_overtaken(self, found: Found) -> None:
        """The grants that came before that of a request in front."""
        arriving = deque(sorted(self._waiting, key=lambda each: each.sent))
        last: dict[str, RequestRow] = {}  # the grant of each priority before
        for number, row in enumerate(self._granted):
            at, rank = row.started or 0.0, rank_of(row.placed)
            while arriving and arriving[0].sent + self._history.bounds.intake < at:
                self._add(arriving.popleft())
            unknown = list[str]()
            for line in self._in_front(_line_of(row), last.get(rank)):
                each = self._first(line, row)
                if each is None or (line == _line_of(row) and each.placed > row.placed):
                    continue
                if each.key != row.key and self._may_be_full(each.key, number):
                    continue
                text = f"{label_of(row)} was granted a slot before {label_of(each)}, which was sent at {iso(each.sent)}"
                if doubt := self._doubt(row, last.get(rank) if line[0] == rank else None, each):
                    unknown.append(f"{text}, unless {doubt}")
                    continue
                found.fails.append(text)
                break
            else:
                found.unknown += unknown[:1]
            # Of one before the period, others of its grant may have ended, and are not known.
            if at - self._history.bounds.reservation >= self._history.since:
                last[rank] = row

    def _add(self, row: RequestRow) -> None:
        line = self._lines.setdefault(_line_of(row), [])
        if not line:
            insort(self._turns, _line_of(row))
        heapq.heappush(line, (row.placed, row.execution, row))

    def _in_front(self, own: _Line, before: RequestRow | None) -> list[_Line]:
        """The own line, all of higher priorities, and those whose turn comes after the grant before and before this."""
        turns, between = self._turns, list[_Line]()
        first, end = (bisect_left(turns, (rank,)) for rank in (own[0], own[0] + "~"))
        if before:
            begin, until = bisect_right(turns, _line_of(before)), bisect_left(turns, own)
            between = turns[begin:until] if _line_of(before) < own else turns[begin:end] + turns[first:until]
        return [own, *turns[:first], *between]

    def _first(self, line: _Line, row: RequestRow) -> RequestRow | None:
        """The first request of a line at a grant, without those that are excused. Removes those granted before."""
        requests, kept, found = self._lines.get(line, []), [], None
        while requests and found is None:
            entry = heapq.heappop(requests)
            if not entry[2].granted or entry[2].granted > row.granted:
                kept.append(entry)
                found = None if self._is_excused(row, entry[2]) else entry[2]
        for entry in kept:
            heapq.heappush(requests, entry)
        if not requests and self._lines.pop(line, None) is not None:
            self._turns.remove(line)
        return found

    def _least(self, key: str, row: RequestRow) -> tuple[int | None, int | None]:
        """The lowest limit of the process, and of a key, at which a request may have been granted; None: not known."""
        at = row.started or 0.0
        since = at - self._history.bounds.reservation
        return self._limits.least(since, at), self._keys.of(key).least(since, at) if self._keys.exist else NO_LIMIT

    def _is_excused(self, row: RequestRow, each: RequestRow) -> bool:
        """Whether a request may have been blocked at a grant, or was in the queue again only after it."""
        weight = self._history.weight(each.execution)
        may_be_blocked = any(least is not None and weight > least for least in self._least(each.key, row))
        return may_be_blocked or (each.put_back is not None and grant_of(row) <= each.put_back)

    def _may_be_full(self, key: str, number: int) -> bool:
        """Whether the heaviest request of a key, which keeps back the others, may not have fitted at a grant."""
        row = self._granted[number]
        _, least = self._least(key, row)
        freed = value_at(self._freed.get(key, ()), (row.started or 0.0) - self._history.bounds.reservation)
        held = value_at(self._given.get(key, ()), number - 1) - freed
        return least is not None and held + self._heaviest[key] > least

    def _doubt(self, row: RequestRow, before: RequestRow | None, each: RequestRow) -> str:
        """Why a request was perhaps not in front of a grant; empty if it certainly was."""
        at, (least, of_key) = row.started or 0.0, self._least(each.key, row)
        if least is None or of_key is None:
            return "its weight was above the limit" if least is None else "its key was at its limit"
        if self._seen_after(each) + self._history.bounds.intake > at:
            return "it was received late"
        if not self._history.all_grants_known(self._name, grant_of(row), grant_of(each) or self._grants):
            return "it had a slot meanwhile that was taken back"
        if each.key != row.key and not self._all_is_recorded(before or row, at):
            return "its key had a turn or a slot meanwhile that is not recorded"
        return ""

    def _all_is_recorded(self, since: RequestRow, at: float) -> bool:
        """Whether each reservation that was made or held from a grant until a time is recorded.

        One that was not started is taken back within `bounds.reservation`, which changes `grants`.
        """
        reservation = self._history.bounds.reservation
        begin, end = (since.started or 0.0) - reservation, at + 2 * reservation
        later = (grant_of(each) for each in self._granted if (each.started or 0.0) > end)
        first, last = grant_of(since), min(later, default=self._grants)
        return (
            self._history.all_grants_known(self._name, first, last)
            and not any(first < (row.put_back or 0) <= last for row in self._history.rows_of[self._name])
            and not any(row.sent <= at and (row.ended or at) >= begin for row in self._unrecorded)
        )


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
