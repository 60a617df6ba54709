"""AWS's records of workflows: executions and the times in their states. All times are seconds since the epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper_cli.audit.intervals import Interval, Release


@dataclass(frozen=True)
class Execution:
    """One workflow. `states`: the first entry and the last exit of each state that it entered."""

    name: str
    started: float
    stopped: float | None
    states: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)

    def entered(self, state: str) -> float | None:
        return self.states[state][0] if state in self.states else None

    def exited(self, state: str) -> float | None:
        return self.states[state][1] if state in self.states else None


def parse_history(summary: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Execution:
    """One execution from its ListExecutions entry and its GetExecutionHistory events, oldest first."""
    states: dict[str, tuple[float, float | None]] = {}
    for event in events:
        kind, at = event["type"], event["timestamp"].timestamp()
        if kind.endswith("StateEntered"):
            states.setdefault(event["stateEnteredEventDetails"]["name"], (at, None))
        elif kind.endswith("StateExited"):
            name = event["stateExitedEventDetails"]["name"]
            states[name] = (states[name][0], at)
    stopped = summary.get("stopDate")
    return Execution(summary["name"], summary["startDate"].timestamp(), stopped and stopped.timestamp(), states)


def read_executions(sfn: Any, workflow_arn: str) -> list[Execution]:
    """All executions of the workflow, ordered by start."""
    executions: list[Execution] = []
    for page in sfn.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for summary in page["executions"]:
            history = sfn.get_paginator("get_execution_history").paginate(executionArn=summary["executionArn"])
            executions.append(parse_history(summary, (event for part in history for event in part["events"])))
    return sorted(executions, key=lambda execution: execution.started)


def held_intervals(executions: Sequence[Execution]) -> list[Interval]:
    """From the start to the entry into ReleaseSlot, which is inside the time for which the workflow holds its slot."""
    return [(e.started, _end(e.entered("ReleaseSlot") or e.stopped)) for e in executions]


def work_intervals(executions: Sequence[Execution], state: str) -> list[Interval]:
    """The time in the state that runs the work."""
    entered = [(e.entered(state), _end(e.exited(state) or e.stopped)) for e in executions]
    return [(start, end) for start, end in entered if start is not None]


def _end(instant: float | None) -> float:
    return math.inf if instant is None else instant


def releases(executions: Sequence[Execution]) -> list[Release]:
    """The workflows' releases that have ended."""
    found = [(e.name, *e.states.get("ReleaseSlot", (0.0, None))) for e in executions]
    return [Release(name, entered, exited) for name, entered, exited in found if exited is not None]
