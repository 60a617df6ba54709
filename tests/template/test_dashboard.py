"""The dashboard: widgets with data, and every metric. test_flow_combinations.py has it without some flows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.template.metrics import in_source
from tests.template.test_template import TEMPLATE
from tests.template.watched import ALARMS, FILTERED, asked_by_widget, judge, widgets

METRICS = [widget for widget in widgets() if widget["type"] == "metric"]
TITLES = [widget["properties"]["title"] for widget in METRICS]


@pytest.mark.parametrize("address", ['a"b', "a\\b", "a b", ""])
def test_a_runbook_address_that_would_break_the_body_is_refused(address: str) -> None:
    parameter = TEMPLATE["Parameters"]["RunbookUrl"]
    assert re.fullmatch(parameter["AllowedPattern"], parameter["Default"])
    assert not re.fullmatch(parameter["AllowedPattern"], address)


@pytest.mark.parametrize("widget", METRICS, ids=TITLES)
def test_a_widget_shows_metrics_that_are_written(widget: dict[str, Any]) -> None:
    asked = list(asked_by_widget(widget))
    assert asked
    assert [judge(each) for each in asked] == [""] * len(asked)


@pytest.mark.parametrize("widget", METRICS, ids=TITLES)
def test_counts_are_summed_and_times_are_not(widget: dict[str, Any]) -> None:
    units = {metric.name: metric.unit for metric in in_source()}
    names = {asked.name for asked in asked_by_widget(widget) if asked.namespace == "Slotkeeper"}
    # Levels, not numbers of events.
    levels = {"SlotsInUse", "SlotLimit", "QueuedRequests", "BlockedRequests", "StartsOverdue", "RequestsUnpublished"}
    levels |= {"DispatchChain", "WorkHops", "BreakerOpen", "PermittedCallers"}
    summed = widget["properties"]["stat"] == "Sum"
    for name in names:
        assert summed is (units[name] == "Count" and name not in levels) or name == "TokenWait"


def test_the_dashboard_shows_every_metric_of_the_application() -> None:
    """Except those that only show that a function runs, and those of a user's own function, another service."""
    shown = {asked.name for widget in METRICS for asked in asked_by_widget(widget)}
    written = {metric.name for metric in in_source()} | set().union(*FILTERED.values())
    assert written - shown == {
        "ColdStart",
        "JanitorRuns",
        "LeaseRingsSkipped",
        "RetryReports",
        "EndingsHandled",
        "TokenRefresherRuns",
    }


@pytest.mark.parametrize("widget", METRICS, ids=TITLES)
def test_a_line_with_an_alarms_name_is_at_its_threshold(widget: dict[str, Any]) -> None:
    hours = 3600 if widget["properties"]["yAxis"]["left"]["label"] == "hours" else 1
    for line in widget["properties"].get("annotations", {}).get("horizontal", []):
        if line["label"] in ALARMS:
            assert line["value"] * hours == ALARMS[line["label"]]["Threshold"]
