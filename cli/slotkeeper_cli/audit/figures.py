"""The figures of a history of work, by process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotkeeper_cli.audit.free_slot_checks import idle_times, waits
from slotkeeper_cli.audit.intervals import Interval, overlap_seconds, rounded, spread
from slotkeeper_cli.audit.work_history import Attempt, WorkHistory, limit_steps


def figures(history: WorkHistory, window: Interval | None = None) -> dict[str, Any]:
    """The figures of each process. Times are in seconds.

    | key | meaning |
    |---|---|
    | `executions` | number by status |
    | `priorities` | by priority: `executions`, and `wait` as below |
    | `wait` | from the message to the start of the execution: count, p50, p90, p99, max |
    | `hand_off` | in a whole run, from a release to the next start, if its request waited: count, p50, p99, max |
    | `free_slot` | times in which a slot was free for the request at the head of the queue: as `wait` |
    | `utilization` | share of the slot-seconds in the period that executions held; None: the limit is not known |

    Args:
        window: for the utilization; by default the period.
    """
    return {name: _of(history, name, window or (history.since, history.until)) for name in history.names}


def _of(history: WorkHistory, name: str, window: Interval) -> dict[str, Any]:
    since = history.since
    attempts = [each for each in history.by_process.get(name, []) if each.stopped is None or each.stopped >= since]
    waited = {row.execution: end - at for row, (at, end) in waits(history, name)}
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
        "hand_off": spread([seconds for _, seconds in hand_offs(history, name)], p50=0.5, p99=0.99),
        "free_slot": spread([each.seconds for each in idle_times(history, name)], p50=0.5, p90=0.9, p99=0.99),
        "utilization": _utilization(history, name, attempts, window),
    }


def _wait(waited: Mapping[str, float], attempts: Iterable[Attempt]) -> dict[str, Any]:
    known = [waited[each.execution] for each in attempts if each.execution in waited]
    return spread(known, p50=0.5, p90=0.9, p99=0.99)


def held(history: WorkHistory, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Interval]]:
    """For how long each execution held its slot: until its work ended, which is a little less than it did."""
    work = {each.execution: each.ended for each in history.work}
    ends = (
        (each, history.freed(each.execution) or work.get(each.execution) or each.stopped or history.now)
        for each in attempts
    )
    return [(each, (each.started, max(each.started, end))) for each, end in ends]


def hand_offs(history: WorkHistory, name: str) -> list[tuple[float, float]]:
    """From each release to the next start, if its request waited: the instant of the start, and the seconds.

    Only a run whose writes are known has the instants of releases: Step Functions lists the end of an execution later.
    """
    idle = [each for each in idle_times(history, name) if each.after_release] if history.versions_of(name) else []
    starts_at = {each.execution: each.started for each in history.by_process.get(name, [])}
    return [(at, at - each.began) for each in idle if (at := starts_at.get(each.taken_by)) is not None]


def _utilization(history: WorkHistory, name: str, attempts: Sequence[Attempt], window: Interval) -> float | None:
    capacity = 0.0
    for at, end, limit in limit_steps(history, name).intervals:
        length = overlap_seconds([(at, end)], window)
        if length and limit is None:
            return None
        capacity += length * (limit or 0)
    used = math.fsum(
        overlap_seconds([span], window) * history.weight(each.execution) for each, span in held(history, attempts)
    )
    return rounded(used / capacity) if capacity else None
