"""The figures of a history of work, by process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotkeeper_cli.audit.free_slot_checks import idle_times, waits
from slotkeeper_cli.audit.intervals import Interval, rounded, spread, utilization
from slotkeeper_cli.audit.work_history import Attempt, WorkHistory, limit_steps


def figures(history: WorkHistory, window: Interval | None = None) -> dict[str, Any]:
    """The figures of each process. Times are in seconds.

    | key | meaning |
    |---|---|
    | `executions` | number by status |
    | `priorities` | by priority: `executions`, and `wait` as below |
    | `wait` | from the message to the start of the execution: count, p50, p90, p99, max |
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
    used = ((span, history.weight(each.execution)) for each, span in held(history, attempts))
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
        "free_slot": spread([each.seconds for each in idle_times(history, name)], p50=0.5, p90=0.9, p99=0.99),
        "utilization": rounded(utilization(used, limit_steps(history, name).steps, window)),
    }


def _wait(waited: Mapping[str, float], attempts: Iterable[Attempt]) -> dict[str, Any]:
    known = [waited[each.execution] for each in attempts if each.execution in waited]
    return spread(known, p50=0.5, p90=0.9, p99=0.99)


def held(history: WorkHistory, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Interval]]:
    """For how long each execution held its slot: until its outcome was recorded, which is a little less than it did."""
    spans = []
    for each in attempts:
        if each.row:
            end = each.row.ended or history.now
        else:
            end = min(history.last_work.get(each.execution) or each.stopped or history.now, history.now)
        spans.append((each, (each.started, max(each.started, end))))
    return spans
