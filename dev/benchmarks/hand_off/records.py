"""What was written down of a way: Step Functions' histories, the functions' REPORT lines, and the calls by CloudTrail.

All times are seconds since the epoch. CloudTrail's are when the call was answered; the engine writes down the calls
that come to it by HTTP, those of functions and clients, and not those of Step Functions, which the histories tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dev.scenarios.runner.intervals import Interval

REPORT = re.compile(r"REPORT RequestId: \S+\s+Duration: (\d+) ms")


@dataclass(frozen=True)
class Passage:
    """One workflow: `states` name -> (entered, exited), the first time it was there."""

    name: str
    status: str
    started: float
    stopped: float | None
    states: Mapping[str, Interval]

    def entered(self, state: str) -> float | None:
        return self.states[state][0] if state in self.states else None

    def exited(self, state: str) -> float | None:
        return self.states[state][1] if state in self.states else None


@dataclass(frozen=True)
class Call:
    """One API call by HTTP. `way` is what it belongs to, `execution` the workflow it is about, where it says so."""

    at: float
    service: str
    operation: str
    way: str
    execution: str | None


def parse_passage(listed: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Passage:
    """One workflow from its entry in the list and its history, oldest first."""
    entered: dict[str, float] = {}
    states: dict[str, Interval] = {}
    for event in events:
        kind, at = event["type"], event["timestamp"].timestamp()
        if kind.endswith("StateEntered"):
            entered.setdefault(event["stateEnteredEventDetails"]["name"], at)
        elif kind.endswith("StateExited"):
            name = event["stateExitedEventDetails"]["name"]
            states.setdefault(name, (entered[name], at))
    stopped = listed.get("stopDate")
    return Passage(
        name=listed["name"],
        status=listed["status"],
        started=listed["startDate"].timestamp(),
        stopped=stopped.timestamp() if stopped else None,
        states=states,
    )


def read_passages(stepfunctions: Any, workflow_arn: str) -> list[Passage]:
    """All workflows, by their start."""
    passages = []
    for page in stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=workflow_arn):
        for listed in page["executions"]:
            history = stepfunctions.get_paginator("get_execution_history").paginate(executionArn=listed["executionArn"])
            passages.append(parse_passage(listed, (event for part in history for event in part["events"])))
    return sorted(passages, key=lambda passage: passage.started)


def read_invocations(logs: Any, group: str) -> list[Interval]:
    """When each invocation of a log group's function began and ended, by its REPORT line, written at its end."""
    invocations = []
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, filterPattern="REPORT"):
        for event in page["events"]:
            if report := REPORT.match(event["message"]):
                end = event["timestamp"] / 1000
                invocations.append((end - int(report[1]) / 1000, end))
    return sorted(invocations)


def parse_call(event: Mapping[str, Any], ways: Mapping[str, str]) -> Call | None:
    """None if it belongs to no way. `ways`: what the call names (a process, a queue's URL, a workflow's ARN) -> way."""
    record = json.loads(event["CloudTrailEvent"])
    asked = record["requestParameters"] or {}
    process = asked.get("Key", {}).get("process_name", {}).get("S")
    about = [name for name in (process, asked.get("QueueUrl"), asked.get("stateMachineArn")) if name]
    named = next((ways[name] for name in about if name in ways), None)
    if named is None:
        return None
    execution = asked.get("name") or asked.get("ExpressionAttributeNames", {}).get("#me")
    service = record["eventSource"].partition(".")[0]
    return Call(event["EventTime"].timestamp(), service, record["eventName"], named, execution)


def read_calls(trail: Any, ways: Mapping[str, str]) -> list[Call]:
    """All calls of the ways, by their time. LookupEvents answers 50 at most, the newest first."""
    calls: dict[str, Call | None] = {}
    end: dict[str, Any] = {}
    while True:
        events = trail.lookup_events(MaxResults=50, **end)["Events"]
        fresh = [event for event in events if event["EventId"] not in calls]
        if not fresh:
            break
        calls |= {event["EventId"]: parse_call(event, ways) for event in fresh}
        end = {"EndTime": min(event["EventTime"] for event in events)}
    return sorted((call for call in calls.values() if call is not None), key=lambda call: call.at)
