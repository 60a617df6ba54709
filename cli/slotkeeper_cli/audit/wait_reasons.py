"""Why requests waited: for how much of the time no slot was free, or the process was paused. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from slotkeeper_cli.audit.intervals import Interval, overlap_seconds, value_at, weighted_steps
from slotkeeper_cli.audit.picture import held
from slotkeeper_cli.audit.work_history import WorkHistory, limit_steps, pauses

PAUSED, FULL, FREE, UNKNOWN = "paused", "no slot free", "a slot free", "limit not known"


def wait_reasons(history: WorkHistory, name: str) -> Callable[[Interval, int], str]:
    """What states, of a wait and a weight, the shares of its time: `no slot free 96%, a slot free 4%`.

    While a slot is free, a request waits for its message, or behind others that have the turn. Leases leave no record,
    so the slots that they held count as free.
    """
    default, limits, breaks = history.default_weight(name), limit_steps(history, name), pauses(history, name)
    if versions := history.versions_of(name):
        used = [(each.at, sum(each.holders.values())) for each in versions]
    else:
        holders = held(history, history.by_process.get(name, []))
        used = weighted_steps((span, each.weight or default) for each, span in holders)
    ends = (at for each in breaks for at in each if at < math.inf)
    instants = sorted({-math.inf, *(at for at, _ in (*used, *limits.steps)), *ends})
    # The free units in each part of the time; negative while it is paused, None while the limit is not known.
    free: list[int | None] = []
    for at in instants:
        limit = limits.values(at, math.nextafter(at, math.inf))[-1]
        is_paused = limit == 0 or any(start <= at < end for start, end in breaks)
        free.append(-1 if is_paused else None if limit is None else max(0, limit - value_at(used, at)))

    def state(units: int | None, weight: int) -> str:
        return UNKNOWN if units is None else PAUSED if units < 0 else FULL if units < weight else FREE

    def reason(wait: Interval, weight: int) -> str:
        first, last = bisect_right(instants, wait[0]) - 1, bisect_right(instants, wait[1])
        seconds = Counter[str]()
        for part, units in zip(pairwise([*instants[first:last], math.inf]), free[first:last], strict=True):
            seconds[state(units, weight)] += overlap_seconds([part], wait)  # type: ignore[assignment]
        total = wait[1] - wait[0]
        shares = [(each, amount / total) for each, amount in seconds.most_common() if amount > 0.005 * total]
        return ", ".join(f"{each} {share:.0%}" for each, share in shares) if total > 0 else ""

    return reason
