"""The deployed dashboard and alarms: every reference is the name of a resource. The measurement of a hand-off."""

from __future__ import annotations

import json
import time
from typing import Any

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.hand_off import LIST_LAG_SECONDS, HandOffs
from tests.e2e.deployed_stack import DeployedStack


def test_the_dashboard_shows_the_deployed_alarms_and_each_links_its_runbook(stack: DeployedStack) -> None:
    cloudwatch = stack.aws.client("cloudwatch")
    text = cloudwatch.get_dashboard(DashboardName=stack.outputs["DashboardName"])["DashboardBody"]
    widgets: list[dict[str, Any]] = json.loads(text)["widgets"]
    (shown,) = (widget["properties"]["alarms"] for widget in widgets if widget["type"] == "alarm")
    pages = cloudwatch.get_paginator("describe_alarms").paginate()
    deployed = {alarm["AlarmArn"]: alarm["AlarmDescription"] for page in pages for alarm in page["MetricAlarms"]}
    assert set(shown) == deployed.keys()
    assert all(" Runbook: docs/runbooks.md#" in description for description in deployed.values())
    assert text.count("${") == text.count("${PROP(")  # CloudWatch's own, for the labels of lines


def test_a_hand_off_is_measured_from_step_functions_records(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    stack.send(process, "first")
    second = stack.send(process, "second")
    stack.wait_until_waiting(process, second)
    hand_offs = HandOffs(Workflow(stack.stepfunctions, stack.outputs["WorkflowArn"]))
    assert hand_offs.measure([stack.item(process)], time.time()) == {}
    stack.end(process, "first", "second")
    stack.wait_for_status(second, "SUCCEEDED")  # for a moment between the two the slot is free
    measured = hand_offs.measure([stack.item(process)], time.time() + LIST_LAG_SECONDS)
    assert measured.keys() == {process}
    assert 0 <= measured[process] < 10
