"""Figures of a variant: hand-offs, slot use, cost per request, and the expected values. Pure; seconds."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from slotkeeper_cli.audit.intervals import Handoff, Interval, Start, handoffs, percentile, utilisation

from .records import Call
from .workflow_records import Execution, held_intervals, releases, work_intervals

# The calls of a starter, and their names in the tables. Nothing else makes these calls while a window is open.
STARTER_CALLS = {
    "dynamodb:UpdateItem": "DynamoDB writes",
    "dynamodb:GetItem": "DynamoDB reads",
    "sqs:ChangeMessageVisibility": "SQS visibility",
    "states:StartExecution": "StartExecution",
}
STATE_CALLS = {
    "ConfirmSlot": "DynamoDB writes",
    "ReleaseSlot": "DynamoDB writes",
    "ReadWaiting": "DynamoDB reads",
    "WakeWaiting": "SQS visibility",
    "ClearWaiting": "DynamoDB writes",
}


@dataclass(frozen=True)
class Window:
    """A time during which a variant had a queue, and the workflows that started in it."""

    executions: Sequence[Execution]
    interval: Interval
    period: int | None
    limit: int

    @property
    def whole(self) -> Interval:
        """From the first start to the last; with a period, to the first start of the last poll.

        Before, no slot was taken yet. Afterwards no start shows when a released slot is taken.
        """
        starts = [execution.started for execution in self.executions]
        if not starts:
            return (self.interval[0], self.interval[0])
        if self.period is None:
            return (starts[0], starts[-1])
        polls = [at for before, at in pairwise(starts) if at - before > self.period / 2]
        return (starts[0], polls[-1] if polls else starts[0])

    @property
    def length(self) -> float:
        return self.whole[1] - self.whole[0]

    @property
    def admitted(self) -> int:
        """Workflows that started within `whole`. The first is left out: its calls were made before."""
        begin, end = self.whole
        return sum(begin < execution.started <= end for execution in self.executions)

    def handoffs(self) -> list[Handoff]:
        """Every request had been sent before the first release."""
        starts = [Start(e.name, e.started, self.interval[0]) for e in self.executions]
        return handoffs(releases(self.executions), starts, self.limit)


def window(executions: Sequence[Execution], interval: Interval, period: int | None, limit: int) -> Window:
    """The window with those of a variant's workflows that started in it."""
    inside = [e for e in executions if interval[0] <= e.started <= interval[1]]
    return Window(sorted(inside, key=lambda e: e.started), interval, period, limit)


def share(windows: Sequence[Window], intervals: Callable[[Sequence[Execution]], list[Interval]]) -> float:
    """The share of all windows' slot-seconds that these intervals of their executions fill."""
    total = math.fsum(each.length for each in windows)
    filled = [
        (utilisation(intervals(each.executions), each.whole, each.limit) or 0.0) * each.length for each in windows
    ]
    return math.fsum(filled) / total if total else 0.0


def work_running(executions: Sequence[Execution]) -> list[Interval]:
    """The time in the states that run Glue jobs and state machines."""
    return [each for state in ("RunGlueJob", "RunStateMachine") for each in work_intervals(executions, state)]


def slots_used(windows: Sequence[Window]) -> float:
    return share(windows, held_intervals)


def holding(windows: Sequence[Window]) -> float:
    """The median time from a workflow's start to its release."""
    started = {execution.name: execution.started for each in windows for execution in each.executions}
    spans = [r.exited - started[r.execution] for each in windows for r in releases(each.executions)]
    return statistics.median(spans) if spans else 0.0


def per_request(windows: Sequence[Window], invocations: Sequence[Interval], calls: Sequence[Call]) -> dict[str, float]:
    """Invocations and calls per started request, of the starter and of the workflow together."""
    admitted = sum(each.admitted for each in windows)
    counts: Counter[str] = Counter(invocations=0)
    for each in windows:
        begin, end = each.whole
        counts["invocations"] += sum(begin < started <= end for started, _ in invocations)
        counts.update(STARTER_CALLS[c.name] for c in calls if c.name in STARTER_CALLS and begin < c.at <= end)
        for execution in each.executions:
            for state, name in STATE_CALLS.items():
                entered = execution.entered(state)
                counts[name] += entered is not None and begin < entered <= end
    return {name: count / admitted if admitted else math.nan for name, count in counts.items()}


@dataclass(frozen=True)
class Expected:
    """The computed figures of polling: a poll every `period`, jobs of equal length, a queue that never ends."""

    hand_off: float
    slots_used: float
    invocations: float


def expected(period: float, held: float, limit: int) -> Expected:
    """One poll, the first after the jobs' end, finds all slots free and fills them.

    The poll that fills the slots ends with a refusal in addition. The polls in between are refusals only.
    """
    polls = max(1, math.ceil(held / period))
    return Expected(polls * period - held, held / (polls * period), 1 + polls / limit)


def spread_out(period: float, held: float, limit: int) -> Expected:
    """The same for jobs that end at any time between two polls, since they take longer than a period."""
    cycle = held + period / 2
    return Expected(period / 2, held / cycle, 1 + cycle / period / limit)


def summary(windows: Sequence[Window], invocations: Sequence[Interval], calls: Sequence[Call]) -> dict[str, Any]:
    """A variant's figures for report.json."""
    by_window = [[handoff.seconds for handoff in each.handoffs()] for each in windows]
    gaps = sorted(gap for each in by_window for gap in each)
    period, held = windows[0].period, holding(windows)
    figures: dict[str, Any] = {
        "period": period,
        "seconds": math.fsum(each.length for each in windows),
        "admitted": sum(each.admitted for each in windows),
        "hand_offs": gaps,
        "median": statistics.median(gaps) if gaps else None,
        "p99": percentile(gaps, 0.99),
        "medians": [statistics.median(each) if each else None for each in by_window],
        "held": held,
        "slots_used": slots_used(windows),
        "work_running": share(windows, work_running),
        "slots_used_by_window": [slots_used([each]) for each in windows],
        "per_request": per_request(windows, invocations, calls),
    }
    return figures if period is None else figures | {"expected": asdict(expected(period, held, windows[0].limit))}
