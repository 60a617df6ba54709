"""The check of a history of work that no more requests started than the rate of their process allows (S11). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.rate import Rate
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.work_history import AFTER_LINE, EXECUTIONS, RATE_CHANGES, WorkHistory, acts_of, grant_of
from slotkeeper_cli.formatting import count, duration, iso


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
