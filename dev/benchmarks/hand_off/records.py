"""Records of a variant: the functions' REPORT lines, and API calls by CloudTrail. Times are seconds since the epoch.

CloudTrail's times are those of the answers. The engine records the calls that reach it by HTTP, those of functions and
clients. The calls of Step Functions are in the executions' histories (workflow_records.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.audit.intervals import Interval

REPORT = re.compile(r"REPORT RequestId: \S+\s+Duration: (\d+) ms")


@dataclass(frozen=True)
class Call:
    """One API call by HTTP, `service:operation`, of the variant whose queue, process or workflow it names."""

    at: float
    name: str
    queue: str  # the variant's


def read_invocations(logs: Any, group: str) -> list[Interval]:
    """Start and end of each invocation of a log group's function, by the REPORT line at its end."""
    invocations = []
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, filterPattern="REPORT"):
        for event in page["events"]:
            if report := REPORT.match(event["message"]):
                end = event["timestamp"] / 1000
                invocations.append((end - int(report[1]) / 1000, end))
    return sorted(invocations)


def parse_call(event: Mapping[str, Any], queues: Mapping[str, str]) -> Call | None:
    """None if it belongs to no variant. `queues`: a process, a queue's URL or a workflow's ARN -> the queue's URL."""
    record = json.loads(event["CloudTrailEvent"])
    request = record["requestParameters"] or {}
    process = request.get("Key", {}).get("process_name", {}).get("S")
    names = (process, request.get("QueueUrl"), request.get("stateMachineArn"))
    named = [queues[name] for name in names if name is not None and name in queues]
    service = record["eventSource"].partition(".")[0]
    return Call(event["EventTime"].timestamp(), f"{service}:{record['eventName']}", named[0]) if named else None


def read_calls(trail: Any, queues: Mapping[str, str]) -> list[Call]:
    """All calls of the variants, by time. LookupEvents returns at most 50, the newest first."""
    calls: dict[str, Call | None] = {}
    end: dict[str, Any] = {}
    while True:
        events = trail.lookup_events(MaxResults=50, **end)["Events"]
        fresh = [event for event in events if event["EventId"] not in calls]
        if not fresh:
            break
        calls |= {event["EventId"]: parse_call(event, queues) for event in fresh}
        end = {"EndTime": min(event["EventTime"] for event in events)}
    return sorted((call for call in calls.values() if call is not None), key=lambda call: call.at)
