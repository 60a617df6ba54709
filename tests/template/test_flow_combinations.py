"""In each combination of flows, no resource, output or alarm of an absent flow exists."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest

from tests.template.roles.resolved_template import CHATBOT, WORKER, Stack
from tests.template.test_template import RESOURCES, TEMPLATE
from tests.template.watched import REFRESHER, REPORT, widgets

COMBINATIONS = [
    chatbot | worker for chatbot, worker in product(({}, CHATBOT, CHATBOT | REFRESHER), ({}, WORKER, WORKER | REPORT))
]
# The words by which resources belong to a flow: in their names, and in those of alarms, log groups and metrics.
WORDS = {
    "ChatApiUrl": re.compile("chat|token|signature|credential", re.I),
    "DeployWorker": re.compile("work(?!flow)|retr[yi]|hop", re.I),
}
# Exceptions to these words: `WorkflowRole` does not belong to the worker.
CONDITIONS = {"ChatApiUrl": {"HasChatbot", "HasRefresher"}, "DeployWorker": {"HasRetryReport", "HasWorker"}}


def _named(flows: dict[str, str]) -> str:
    return " ".join(flows) or "slots alone"


def _absent(flows: dict[str, str]) -> set[str]:
    """The conditions that are false."""
    optional = {"HasRefresher": "TokenRefreshSchedule", "HasRetryReport": "RetryReportSchedule"}
    absent = {condition for condition, parameter in optional.items() if parameter not in flows}
    return absent.union(*(CONDITIONS[parameter] for parameter in CONDITIONS.keys() - flows))


@pytest.fixture(scope="module", params=COMBINATIONS, ids=_named)
def flows(request: pytest.FixtureRequest) -> dict[str, str]:
    combination: dict[str, str] = request.param
    return combination


@pytest.fixture(scope="module")
def stack(flows: dict[str, str]) -> Stack:
    """The stack with all references resolved; a reference to an absent resource raises an error."""
    return Stack(**flows)


def test_by_default_the_slots_are_deployed_alone() -> None:
    defaults = {name: TEMPLATE["Parameters"][name]["Default"] for name in CONDITIONS}
    assert defaults == {"ChatApiUrl": "", "DeployWorker": "false"}


def test_no_resource_of_an_absent_flow_is_deployed(stack: Stack, flows: dict[str, str]) -> None:
    """By the conditions, and by the names: a resource that lacks its condition still has its flow's name."""
    absent = {name for name, each in RESOURCES.items() if each.get("Condition") in _absent(flows)}
    assert not absent & stack.resources.keys()
    for parameter in CONDITIONS.keys() - flows:
        assert [name for name in stack.resources if WORDS[parameter].search(name)] == []


def test_outputs_are_those_of_the_deployed_flows(stack: Stack, flows: dict[str, str]) -> None:
    unused = _absent(flows) | {"HasKey"}  # of a parameter that no combination sets
    expected = {n for n, output in TEMPLATE["Outputs"].items() if output.get("Condition") not in unused}
    assert stack.outputs().keys() == expected
    for parameter in CONDITIONS.keys() - flows:
        assert [name for name in expected if WORDS[parameter].search(name)] == []


def test_no_alarm_watches_an_absent_flow(stack: Stack, flows: dict[str, str]) -> None:
    """Its metric has no data: an alarm would cost money, and one for missing data would never return to OK."""
    for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items():
        watched = json.dumps([alarm.get(key) for key in ("MetricName", "Dimensions", "Metrics")])
        for parameter in CONDITIONS.keys() - flows:
            assert not WORDS[parameter].search(watched.replace("AWS/", "")), name


def test_the_dashboard_shows_the_deployed_flows_and_all_their_alarms(stack: Stack, flows: dict[str, str]) -> None:
    shown = widgets(stack)
    titles = [widget["properties"]["markdown"] for widget in shown if widget["type"] == "text"][1:]
    assert len(titles) == 1 + len(flows.keys() & CONDITIONS.keys())
    (listed,) = (widget["properties"]["alarms"] for widget in shown if widget["type"] == "alarm")
    assert sorted(listed) == sorted(map(stack.arn, stack.of_type("AWS::CloudWatch::Alarm")))
