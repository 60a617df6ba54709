"""A design's figures from AWS's records: hand-offs, slot use, invocations. Seconds since the epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slotkeeper_cli.audit.intervals import Handoff, Interval, Release, Start, handoffs, overlap_seconds

REPORT = re.compile(r"REPORT RequestId: \S+\s+Duration: (\d+) ms")


@dataclass(frozen=True)
class Execution:
    """One workflow, and the entry into and exit from its state ReleaseSlot."""

    name: str
    started: float
    release_entered: float | None = None
    release_exited: float | None = None


def read_executions(sfn: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, ordered by start."""
    executions = []
    for page in sfn.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for listed in page["executions"]:
            times: dict[str, float] = {}
            history = sfn.get_paginator("get_execution_history").paginate(executionArn=listed["executionArn"])
            for event in (event for part in history for event in part["events"]):
                for kind in ("Entered", "Exited"):
                    if event.get(f"state{kind}EventDetails", {}).get("name") == "ReleaseSlot":
                        times[kind] = event["timestamp"].timestamp()
            started = listed["startDate"].timestamp()
            executions.append(Execution(listed["name"], started, times.get("Entered"), times.get("Exited")))
    return sorted(executions, key=lambda execution: execution.started)


def read_invocations(logs: Any, group: str) -> list[float]:
    """The start of each invocation of a log group's function, by the REPORT line at its end."""
    starts = []
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, filterPattern="REPORT"):
        for event in page["events"]:
            if report := REPORT.match(event["message"]):
                starts.append((event["timestamp"] - int(report[1])) / 1000)
    return sorted(starts)


@dataclass(frozen=True)
class Window:
    """A time during which a design had a queue, and the workflows that started in it, ordered by start.

    Args:
        period: seconds between two polls; None with a wake.
        limit: the slots.
    """

    executions: Sequence[Execution]
    sent: float
    period: int | None
    limit: int

    @property
    def whole(self) -> Interval:
        """From the first start to the last; with a period, to the first start of the last poll.

        Before, no slot was taken yet. Afterwards no start shows when a released slot is taken.
        """
        starts = [execution.started for execution in self.executions]
        if not starts:
            return (self.sent, self.sent)
        if self.period is None:
            return (starts[0], starts[-1])
        polls = [at for before, at in pairwise(starts) if at - before > self.period / 2]
        return (starts[0], polls[-1] if polls else starts[0])

    def handoffs(self) -> list[Handoff]:
        """Every request had been sent before the first release."""
        releases = [
            Release(each.release_entered, each.release_exited)
            for each in self.executions
            if each.release_entered is not None and each.release_exited is not None
        ]
        return handoffs(releases, [Start(e.started, self.sent) for e in self.executions], self.limit)

    def slots_used(self) -> float:
        """The share of slot time from a start to the entry into ReleaseSlot."""
        held = [(e.started, e.release_entered or math.inf) for e in self.executions]
        begin, end = self.whole
        return overlap_seconds(held, self.whole) / ((end - begin) * self.limit) if end > begin else 0.0

    def invocations_per_request(self, invocations: Sequence[float]) -> float:
        """Of the starter. The first start is left out: its invocation was made before."""
        begin, end = self.whole
        admitted = sum(begin < execution.started <= end for execution in self.executions)
        return sum(begin < at <= end for at in invocations) / admitted if admitted else math.nan


def expected(period: float, held: float, limit: int) -> Mapping[str, float]:
    """The computed figures of polling with jobs of equal length and a queue that never ends.

    One poll, the first after the jobs' end, finds all slots free and fills them, and ends with a refusal in addition.
    The polls in between are refusals only.
    """
    polls = max(1, math.ceil(held / period))
    return {
        "median": polls * period - held,
        "slots_used": held / (polls * period),
        "invocations": 1 + polls / limit,
    }
