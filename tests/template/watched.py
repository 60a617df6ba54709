"""The alarms, the dashboard and the saved queries of a stack with every flow, and the metrics that they use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.template.aws_metrics import KNOWN, NAMED_BY
from tests.template.metrics import in_source
from tests.template.roles.resolved_template import CHATBOT, WORKER, Stack

REFRESHER, REPORT = {"TokenRefreshSchedule": "rate(1 hour)"}, {"RetryReportSchedule": "rate(7 days)"}
STACK = Stack(**CHATBOT, **REFRESHER, **WORKER, **REPORT)
ALARMS = STACK.of_type("AWS::CloudWatch::Alarm")
QUERIES = STACK.of_type("AWS::Logs::QueryDefinition")
# Namespace -> the metrics that filters write there.
FILTERED = {
    transformation["MetricNamespace"]: {transformation["MetricName"]}
    for filtered in STACK.of_type("AWS::Logs::MetricFilter").values()
    for transformation in filtered["MetricTransformations"]
}
OF_THE_STACK = (("service", "slotkeeper"),)


@dataclass(frozen=True)
class Asked:
    """A metric that an alarm or a widget uses, with the names and values of its dimensions."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


def judge(asked: Asked) -> str:
    """The reason why this metric is never written; empty if it is written."""
    names = tuple(sorted(name for name, _ in asked.dimensions))
    if asked.namespace == "Slotkeeper":
        ours = sorted(metric.dimensions for metric in in_source() if metric.name == asked.name)
        if not ours:
            return f"no function writes {asked.name}"
        return "" if names in ours else f"{asked.name} is written under {ours}, not {names}"
    if asked.namespace in FILTERED:
        known = asked.name in FILTERED[asked.namespace] and not names
        return "" if known else f"no filter writes {asked.name} under {names}"
    if asked.name not in KNOWN.get((asked.namespace, names), set()):
        return f"AWS has no {asked.namespace} {asked.name} under {names}"
    for name, value in asked.dimensions:
        if name in NAMED_BY and value not in map(_reference, STACK.of_type(NAMED_BY[name])):
            return f"{name} is {value}, which is not a {NAMED_BY[name]}"
    return ""


def _reference(name: str) -> str:
    """The name of a resource, or the ARN of a state machine."""
    is_machine = STACK.resources[name]["Type"] == "AWS::StepFunctions::StateMachine"
    return STACK.arn(name) if is_machine else STACK.physical(name)


def asked_by_alarm(alarm: Any) -> Iterator[Asked]:
    metrics = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", []) if "MetricStat" in each]
    for metric in metrics or [alarm]:
        dimensions = tuple((each["Name"], each["Value"]) for each in metric.get("Dimensions", []))
        yield Asked(metric["Namespace"], metric["MetricName"], dimensions)


def widgets(stack: Stack = STACK) -> list[dict[str, Any]]:
    """The widgets of a stack's dashboard. Raises ValueError if its body is not JSON."""
    shown: list[dict[str, Any]] = json.loads(stack.properties("Dashboard")["DashboardBody"])["widgets"]
    return shown


def asked_by_widget(widget: dict[str, Any]) -> Iterator[Asked]:
    before: list[str] = []
    for row in widget["properties"].get("metrics", []):
        options = row[-1] if isinstance(row[-1], dict) else {}
        if "expression" in options:
            yield from _searched(options["expression"])
            continue
        words = [word for word in row if isinstance(word, str)]
        # "." repeats the value of the row before (CloudWatch API Reference, "Dashboard body structure").
        before = [before[n] if word == "." else word for n, word in enumerate(words)]
        yield Asked(before[0], before[1], tuple(zip(before[2::2], before[3::2], strict=True)))


def _searched(expression: str) -> Iterator[Asked]:
    match = re.fullmatch(r"SEARCH\('\{([^}]+)\} (.+)', '\w+', \d+\)", expression)
    if not match:
        return  # arithmetic over other rows
    namespace, *dimensions = match[1].split(",")
    for name in re.findall(r'MetricName="(\w+)"', match[2]):
        yield Asked(namespace, name, tuple((dimension, "*") for dimension in dimensions))
