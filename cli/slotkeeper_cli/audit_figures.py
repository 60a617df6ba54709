"""The figures of a history of work, by process and priority. Pure; makes no call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotkeeper_cli.free_slot_checks import waits
from slotkeeper_cli.intervals import Interval, Release, Start, handoffs, overlap_seconds, rounded, spread
from slotkeeper_cli.limit_steps import limit_steps
from slotkeeper_cli.work_history import Attempt, WorkHistory


def figures(history: WorkHistory, window: Interval | None = None) -> dict[str, Any]:
    """The figures of each process. Times are in seconds.

    | key | meaning |
    |---|---|
    | `executions` | number by status |
    | `priorities` | by priority: `executions`, and `wait` as below |
    | `wait` | from the message to the start of the execution, of the messages whose time is known: count, p50, ... |
    | `hand_off` | from a release to the next start, if its request waited: count, p50, p99, max |
    | `utilization` | share of the slot-seconds in the period that executions held; None: the limit is not known |

    Args:
        window: for the utilization; by default the period.
    """
    return {name: _of(history, name, window or (history.since, history.until)) for name in history.names}


def _of(history: WorkHistory, name: str, window: Interval) -> dict[str, Any]:
    since = history.since
    attempts = [each for each in history.by_process.get(name, []) if each.stopped is None or each.stopped >= since]
    waited = {
        sending.execution: end - at
        for sending, (at, end) in waits(history)
        if sending.execution in history.by_execution
    }
    priorities = sorted({each.priority for each in attempts if each.priority is not None})
    return {
        "executions": dict(Counter(each.status for each in attempts).most_common()),
        "priorities": {
            priority: {
                "executions": sum(each.priority == priority for each in attempts),
                "wait": _wait(waited, (each for each in attempts if each.priority == priority)),
            }
            for priority in priorities
        },
        "wait": _wait(waited, attempts),
        "hand_off": spread(_hand_offs(history, name, attempts), p50=0.5, p99=0.99),
        "utilization": _utilization(history, name, attempts, window),
    }


def _wait(waited: Mapping[str, float], attempts: Iterable[Attempt]) -> dict[str, Any]:
    known = [waited[each.execution] for each in attempts if each.execution in waited]
    return spread(known, p50=0.5, p90=0.9, p99=0.99)


def held(history: WorkHistory, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Interval]]:
    """For how long each execution held its slot: until its work ended, which is a little less than it did."""
    work = {each.execution: each.ended for each in history.work}
    ends = ((each, each.freed or work.get(each.execution) or each.stopped or history.now) for each in attempts)
    return [(each, (each.started, max(each.started, end))) for each, end in ends]


def _hand_offs(history: WorkHistory, name: str, attempts: Sequence[Attempt]) -> list[float]:
    """The hand-offs, if all slots are alike: the limit did not change, and no weight is known."""
    limits = set(limit_steps(history, name).values(-math.inf, math.inf))
    limit = next(iter(limits))
    if len(limits) > 1 or limit is None or any(each.weight not in (None, 1) for each in attempts):
        return []
    sent = {each.execution: each.at for each in history.sendings}
    ended = [(each, end) for each, (_, end) in held(history, attempts) if each.stopped is not None]
    releases = [Release(each.execution, end, each.freed or each.stopped or end) for each, end in ended]
    starts = [Start(each.execution, each.started, sent.get(each.execution, math.inf)) for each in attempts]
    return [each.seconds for each in handoffs(releases, starts, limit)]


def _utilization(history: WorkHistory, name: str, attempts: Sequence[Attempt], window: Interval) -> float | None:
    steps = limit_steps(history, name).steps
    ends = [*(at for at, _ in steps[1:]), math.inf]
    capacity = 0.0
    for (at, limit), end in zip(steps, ends, strict=True):
        length = overlap_seconds([(at, end)], window)
        if length and limit is None:
            return None
        capacity += length * (limit or 0)
    process = history.processes.get(name)
    default = process.default_weight if process else 1
    used = math.fsum(
        overlap_seconds([span], window) * (each.weight or default) for each, span in held(history, attempts)
    )
    return rounded(used / capacity) if capacity else None
