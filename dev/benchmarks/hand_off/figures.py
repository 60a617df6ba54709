"""From records to figures: a way's hand-offs, how full its slots were, what a request cost, what arithmetic expects.

Pure; seconds throughout.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dev.scenarios.runner.intervals import Handoff, Interval, Release, Start, handoffs, percentile, utilisation

from .records import Call, Passage

RELEASE = "ReleaseSlot"
READ, WAKE = "ReadWaiting", "WakeWaiting"
JOB = "RunGlueJob"
# What a starter calls, and its name in the tables. Nothing else makes these calls while a window is open.
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
}
PARTS = ("read who waits", "wake until the starter runs", "reserve", "start the execution")


@dataclass(frozen=True)
class Window:
    """One look at a way with a standing queue: its workflows that started while it was open."""

    passages: Sequence[Passage]
    interval: Interval
    period: int | None
    limit: int

    @property
    def whole(self) -> Interval:
        """From the first start to the last; with a period to the first of the last round, so that all rounds are whole.

        Before, no slot was taken yet; after it, nobody is seen to take what is given back.
        """
        starts = [passage.started for passage in self.passages]
        if not starts:
            return (self.interval[0], self.interval[0])
        if self.period is None:
            return (starts[0], starts[-1])
        rounds = [at for before, at in pairwise(starts) if at - before > self.period / 2]
        return (starts[0], rounds[-1] if rounds else starts[0])

    @property
    def admitted(self) -> int:
        """Workflows that started in the whole rounds, each counted at the end of what it took to start it."""
        begin, end = self.whole
        return sum(begin < passage.started <= end for passage in self.passages)

    def handoffs(self) -> list[Handoff]:
        """Every request had been sent before the first slot came free."""
        releases = [Release(p.name, *p.states[RELEASE]) for p in self.passages if RELEASE in p.states]
        starts = [Start(p.name, p.started, self.interval[0]) for p in self.passages]
        return handoffs(releases, starts, self.limit)

    def held(self) -> list[Interval]:
        """From the start to the entry of ReleaseSlot: surely inside the time in which the slot is held."""
        return [(p.started, _or_for_ever(p.entered(RELEASE))) for p in self.passages]

    def jobs(self) -> list[Interval]:
        """The Glue job's part of it."""
        return [(p.states[JOB][0], _or_for_ever(p.exited(JOB))) for p in self.passages if JOB in p.states]


def _or_for_ever(instant: float | None) -> float:
    return math.inf if instant is None else instant


def window(passages: Sequence[Passage], interval: Interval, period: int | None, limit: int) -> Window:
    """Of all workflows of a way, those that started while the window was open."""
    inside = [p for p in passages if interval[0] <= p.started <= interval[1]]
    return Window(sorted(inside, key=lambda p: p.started), interval, period, limit)


def slots_used(windows: Sequence[Window]) -> float:
    """The share of slot-seconds held, over all windows."""
    return _share(windows, [each.held() for each in windows])


def jobs_running(windows: Sequence[Window]) -> float:
    """The share of slot-seconds in which the job itself ran."""
    return _share(windows, [each.jobs() for each in windows])


def _share(windows: Sequence[Window], intervals: Sequence[Sequence[Interval]]) -> float:
    lengths = [each.whole[1] - each.whole[0] for each in windows]
    shares = [utilisation(spans, each.whole, each.limit) or 0.0 for spans, each in zip(intervals, windows, strict=True)]
    total = math.fsum(lengths)
    return math.fsum(s * n for s, n in zip(shares, lengths, strict=True)) / total if total else 0.0


def holding(windows: Sequence[Window]) -> float:
    """The median time for which a slot is held, from the start to the release."""
    spans = [p.states[RELEASE][1] - p.started for each in windows for p in each.passages if RELEASE in p.states]
    return statistics.median(spans) if spans else 0.0


def per_request(windows: Sequence[Window], invocations: Sequence[Interval], calls: Sequence[Call]) -> dict[str, float]:
    """Invocations and calls a started request, of the starter and of the workflow together."""
    admitted = sum(each.admitted for each in windows)
    counts: Counter[str] = Counter(invocations=0, receives=0)
    for each in windows:
        begin, end = each.whole
        counts["invocations"] += sum(begin < started <= end for started, _ in invocations)
        for call in calls:
            name = STARTER_CALLS.get(f"{call.service}:{call.operation}")
            if name and begin < call.at <= end:
                counts[name] += 1
        for passage in each.passages:
            for state, name in STATE_CALLS.items():
                counts[name] += begin < passage.states.get(state, (math.inf, 0.0))[0] <= end
    counts["receives"] = counts["invocations"]  # batches of one message
    return {name: count / admitted if admitted else math.nan for name, count in counts.items()}


def parts(each: Window, invocations: Sequence[Interval], calls: Sequence[Call]) -> list[tuple[float, ...]]:
    """Of every hand-off that came about by its own workflow's wake, how long each of PARTS took.

    The others have no such story: another wake was faster, or the next message came by itself after the one before it.
    """
    by_name = {passage.name: passage for passage in each.passages}
    begins = [started for started, _ in invocations]
    shares = []
    for handoff in each.handoffs():
        states = by_name[handoff.from_execution].states
        starts = [call.at for call in calls if call.execution == handoff.to_execution]
        reserved = _last(calls, handoff.to_execution, "UpdateItem")
        if reserved is None or WAKE not in states or not starts:
            continue
        number = bisect_left(begins, reserved) - 1
        if number < 0:
            continue
        instants = (handoff.released, states[WAKE][0], begins[number], reserved, handoff.started)
        if all(a <= b + 0.002 for a, b in pairwise(instants)):
            shares.append(tuple(max(0.0, b - a) for a, b in pairwise(instants)))
    return shares


def _last(calls: Sequence[Call], execution: str, operation: str) -> float | None:
    """When the call was answered that reserved the slot: the last one, for those before it were refused."""
    return max((c.at for c in calls if c.execution == execution and c.operation == operation), default=None)


@dataclass(frozen=True)
class Expected:
    """What arithmetic says of polling: a look every `period`, jobs of equal length, a queue that never ends."""

    hand_off: float
    slots_used: float
    invocations: float


def expected(period: float, held: float, limit: int) -> Expected:
    """All slots are found free at the same look, the first one after the jobs' end, and filled at once.

    A look that fills the slots ends with one refusal more than it admits; the looks in between are refusals only.
    """
    looks = max(1, math.ceil(held / period))
    return Expected(looks * period - held, held / (looks * period), 1 + looks / limit)


def spread_out(period: float, held: float, limit: int) -> Expected:
    """The same where jobs end at any time between two looks, as they do when they take longer than a period."""
    cycle = held + period / 2
    return Expected(period / 2, held / cycle, 1 + cycle / period / limit)


def summary(windows: Sequence[Window], invocations: Sequence[Interval], calls: Sequence[Call]) -> dict[str, Any]:
    """A way's figures, as report.json has them."""
    gaps = [handoff.seconds for each in windows for handoff in each.handoffs()]
    period = windows[0].period
    held = holding(windows)
    figures: dict[str, Any] = {
        "period": period,
        "seconds": math.fsum(each.whole[1] - each.whole[0] for each in windows),
        "admitted": sum(each.admitted for each in windows),
        "hand_offs": sorted(gaps),
        "median": statistics.median(gaps) if gaps else None,
        "p99": percentile(gaps, 0.99),
        "medians": [_median([handoff.seconds for handoff in each.handoffs()]) for each in windows],
        "held": held,
        "slots_used": slots_used(windows),
        "jobs_running": jobs_running(windows),
        "slots_used_by_window": [slots_used([each]) for each in windows],
        "per_request": per_request(windows, invocations, calls),
    }
    if period is not None:
        arithmetic = expected(period, held, windows[0].limit)
        figures["expected"] = {
            "hand_off": arithmetic.hand_off,
            "slots_used": arithmetic.slots_used,
            "invocations": arithmetic.invocations,
        }
    return figures


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
