"""The template's alarms, dashboard (as CloudWatch receives it) and saved queries, and the metrics that they use."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tests.template.aws_metrics import KNOWN, NAMED_BY
from tests.template.metrics import in_source
from tests.template.test_template import RESOURCES, TEMPLATE

ALARMS = {name: r["Properties"] for name, r in RESOURCES.items() if r["Type"] == "AWS::CloudWatch::Alarm"}
QUERIES = {name: r["Properties"] for name, r in RESOURCES.items() if r["Type"] == "AWS::Logs::QueryDefinition"}
FILTERED = {
    "Slotkeeper/${AWS::StackName}": {
        transformation["MetricName"]
        for resource in RESOURCES.values()
        if resource["Type"] == "AWS::Logs::MetricFilter"
        for transformation in resource["Properties"]["MetricTransformations"]
    }
}
PSEUDO = {"AWS::StackName", "AWS::Region", "AWS::Partition", "AWS::AccountId", "AWS::URLSuffix"}


@dataclass(frozen=True)
class Asked:
    """A metric that an alarm or a widget uses. `dimensions`: names and values, as written in the template."""

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
        resource = re.sub(r"^\$\{(\w+)(\.QueueName)?\}$", r"\1", value)
        if name in NAMED_BY and RESOURCES.get(resource, {}).get("Type") != NAMED_BY[name]:
            return f"{name} is {value}, which is not a {NAMED_BY[name]}"
    return ""


def as_text(value: Any, conditions: Collection[str] = ()) -> str:
    """A value of the template as a text for Fn::Sub, where these conditions are true."""
    match value:
        case {"Fn::If": [condition, if_true, if_false]}:
            return as_text(if_true if condition in conditions else if_false, conditions)
        case {"Fn::Sub": [text, {**variables}]}:
            for name, inner in variables.items():
                text = text.replace(f"${{{name}}}", as_text(inner, conditions))
            return str(text)
        case {"Ref": name}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"${{{name}.{attribute}}}"
        case {"Fn::Sub": str(text)}:
            return text
    return str(value)


# ------------------------------------------------------------------------------------------------------------ alarms


def asked_by_alarm(alarm: Any) -> Iterator[Asked]:
    metrics = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", []) if "MetricStat" in each]
    for metric in metrics or [alarm]:
        dimensions = tuple((each["Name"], as_text(each["Value"])) for each in metric.get("Dimensions", []))
        yield Asked(as_text(metric["Namespace"]), metric["MetricName"], dimensions)


# --------------------------------------------------------------------------------------------------------- dashboard


FLOWS = ("HasChatbot", "HasRefresher", "HasRetryReport", "HasWorker")


def dashboard(conditions: Collection[str] = FLOWS) -> dict[str, Any]:
    """The body, with unresolved references. Raises ValueError if it is not JSON."""
    body: dict[str, Any] = json.loads(as_text(RESOURCES["Dashboard"]["Properties"]["DashboardBody"], conditions))
    return body


def unknown_references(text: str) -> set[str]:
    """The names in a text for Fn::Sub that the template does not define; `${!...}` is CloudWatch syntax."""
    referred = {name.partition(".")[0] for name in re.findall(r"\$\{([^!}][^}]*)\}", text)}
    return referred - RESOURCES.keys() - TEMPLATE["Parameters"].keys() - PSEUDO


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
