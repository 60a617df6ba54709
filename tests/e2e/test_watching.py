"""The deployed dashboard and alarms: every reference has become a name that exists."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.stack import Stack


def test_the_dashboard_shows_the_alarms_that_are_deployed_and_each_says_where_its_runbook_is(stack: Stack) -> None:
    cloudwatch = stack.aws.client("cloudwatch")
    text = cloudwatch.get_dashboard(DashboardName=stack.outputs["DashboardName"])["DashboardBody"]
    widgets: list[dict[str, Any]] = json.loads(text)["widgets"]
    (shown,) = (widget["properties"]["alarms"] for widget in widgets if widget["type"] == "alarm")
    pages = cloudwatch.get_paginator("describe_alarms").paginate()
    deployed = {alarm["AlarmArn"]: alarm["AlarmDescription"] for page in pages for alarm in page["MetricAlarms"]}
    assert set(shown) == deployed.keys()
    assert all(" Runbook: docs/runbooks.md#" in description for description in deployed.values())
    assert text.count("${") == text.count("${PROP(")  # the latter are CloudWatch's, for the names of lines
