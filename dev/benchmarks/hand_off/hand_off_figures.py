"""Figures from AWS's records: hand-offs, starts a second, the order of grants, invocations. Seconds since the epoch."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REPORT = re.compile(r"REPORT RequestId: \S+\s+Duration: (\d+) ms")


@dataclass(frozen=True)
class Execution:
    """One workflow, and the entry into and exit from its state ReleaseSlot."""

    name: str
    started: float
    release_entered: float | None = None
    release_exited: float | None = None


def read_executions(sfn: Any, listed: Iterable[Mapping[str, Any]]) -> list[Execution]:
    """The executions of a list, ordered by start."""
    executions = []
    for each in listed:
        times: dict[str, float] = {}
        history = sfn.get_paginator("get_execution_history").paginate(executionArn=each["executionArn"])
        for event in (event for part in history for event in part["events"]):
            for kind in ("Entered", "Exited"):
                if event.get(f"state{kind}EventDetails", {}).get("name") == "ReleaseSlot":
                    times[kind] = event["timestamp"].timestamp()
        started = each["startDate"].timestamp()
        executions.append(Execution(each["name"], started, times.get("Entered"), times.get("Exited")))
    return sorted(executions, key=lambda execution: execution.started)


def read_invocations(logs: Any, group: str) -> list[float]:
    """The start of each invocation of a log group's function, by the REPORT line at its end."""
    starts = []
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, filterPattern="REPORT"):
        for event in page["events"]:
            if report := REPORT.match(event["message"]):
                starts.append((event["timestamp"] - int(report[1])) / 1000)
    return sorted(starts)


def gaps(executions: Sequence[Execution], limit: int) -> list[float]:
    """From each release to the next start, in seconds, if every request was sent before the first release.

    1. The first `limit` starts take unused slots and belong to no release.
    2. Each release gets the earliest remaining start that is not before its entry into ReleaseSlot. The write happens
       inside that state, so the next workflow can start before the state's end is recorded. The gap counts from the
       exit, and is 0 in that case.
    """
    releases = [
        (each.release_exited, each.release_entered)
        for each in executions
        if each.release_exited is not None and each.release_entered is not None
    ]
    waiting, found = deque(sorted(each.started for each in executions)[limit:]), list[float]()
    for exited, entered in sorted(releases):
        while waiting and waiting[0] < entered:
            waiting.popleft()  # the janitor freed the slot of this start
        if waiting:
            found.append(max(0.0, waiting.popleft() - exited))
    return sorted(found)


def starts_a_second(starts: Sequence[float]) -> float:
    """Of these starts, in order."""
    return (len(starts) - 1) / (starts[-1] - starts[0])


def out_of_order(rows: Iterable[Mapping[str, Any]]) -> int:
    """The number of grants that came before one with an earlier place. The rows are in DynamoDB's format.

    Without rows whose work ended before their start was marked, which have no `granted`.
    """
    granted = sorted((row["granted"]["S"], row["placed"]["S"]) for row in rows if "granted" in row)
    wrong, first = 0, ""
    for _, place in reversed(granted):
        wrong += bool(first) and first < place
        first = min(first or place, place)
    return wrong
