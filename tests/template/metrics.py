"""The metrics that the code can write, read from its source, and those that it wrote, read from its output."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "functions").glob("*/*.py"), *(ROOT / "layers" / "slotkeeper" / "slotkeeper").rglob("*.py")]
STACK = ("service",)
PROCESS = ("process", "service")
PRIORITY = ("priority", "process", "service")
CONTAINER = ("function_name", "service")


@dataclass(frozen=True, order=True)
class Metric:
    """One metric of the namespace Slotkeeper; the names of its dimensions are in order."""

    name: str
    unit: str
    dimensions: tuple[str, ...]


@cache
def in_source() -> frozenset[Metric]:
    """The metrics that the functions and the layer can write."""
    metrics = {metric for tree in _trees() for metric in _of(tree)}
    return frozenset(metrics | {Metric(name, "Count", STACK) for name in findings_in_source()})


@cache
def _trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in SOURCES]


def findings_in_source() -> set[str]:
    """The janitor's findings (slotkeeper.slots.run_report.RunReport). Each has a metric of its name."""
    counted = [
        node.slice
        for tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "counts"
    ]
    texts = (*(call.args[0] for call in _calls("note")), *counted)
    return {text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)}


def details_in_source() -> set[str]:
    """The fields that a finding can have in addition to its message."""
    return {
        str(keyword.arg)
        for call in (call for method in ("note", "guard", "failed", "cut_short") for call in _calls(method))
        if not ast.unparse(call.func).startswith("self.observer.")  # the starter's, which logs no findings
        for keyword in call.keywords
        if keyword.arg
    }


def _calls(method: str) -> list[ast.Call]:
    return _calls_of_methods()[method]


@cache
def _calls_of_methods() -> dict[str, list[ast.Call]]:
    """Method name -> its calls in the source."""
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                calls[node.func.attr].append(node)
    return calls


def _of(tree: ast.Module) -> Iterator[Metric]:
    tables = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node:
                case ast.Call(func=ast.Attribute(attr="add_metric"), args=[name, ast.Attribute(attr=unit), *_]):
                    yield from (Metric(text, MetricUnit[unit].value, STACK) for text in _texts(name))
                case ast.Call(func=ast.Name(id="_count") | ast.Attribute(attr="_count"), args=[name]):
                    if isinstance(name, ast.Subscript) and isinstance(name.value, ast.Name):
                        values = tables[name.value.id].values
                    else:
                        values = [name]
                    yield from (Metric(text, "Count", STACK) for value in values for text in _texts(value))
                case ast.Call(func=ast.Name(id="measure_process"), args=[_, ast.Attribute(attr=unit)], keywords=values):
                    names = [str(each.arg) for each in values if each.arg != "of_priority"]
                    yield from (Metric(name, MetricUnit[unit].value, PROCESS) for name in names)
                    if len(names) < len(values):
                        yield from (Metric(name, MetricUnit[unit].value, PRIORITY) for name in names)
                case ast.Call(
                    func=ast.Attribute(attr="log_metrics"), keywords=[ast.keyword(arg="capture_cold_start_metric")]
                ):
                    yield Metric("ColdStart", "Count", CONTAINER)


def _texts(name: ast.expr) -> Iterator[str]:
    for node in ast.walk(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def in_output(output: str) -> set[Metric]:
    """An output's metrics (CloudWatch guide, "Specification: Embedded metric format")."""
    metrics = set()
    for line in output.splitlines():
        written: dict[str, Any] = json.loads(line) if line.startswith("{") and '"_aws"' in line else {}
        for directive in written.get("_aws", {}).get("CloudWatchMetrics", []):
            assert directive["Namespace"] == "Slotkeeper"
            for dimensions in directive["Dimensions"]:
                assert all(isinstance(written[each], str) for each in dimensions)
                metrics |= {
                    Metric(each["Name"], each["Unit"], tuple(sorted(dimensions))) for each in directive["Metrics"]
                }
                assert all(each["Name"] in written for each in directive["Metrics"])
    return metrics
