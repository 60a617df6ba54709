"""The deployed alarms and their topic, and the key of docs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.deployed_stack import DeployedStack, created
from tests.e2e.receivers import subscribed

KEY_TEMPLATE = Path(__file__).parents[2] / "docs" / "kms-key.yaml"


def test_an_alarm_is_published_to_the_topic(stack: DeployedStack) -> None:
    cloudwatch, inbox = stack.aws.client("cloudwatch"), subscribed(stack.aws, "hears-alarms")
    (alarm,) = [
        found["AlarmName"]
        for page in cloudwatch.get_paginator("describe_alarms").paginate()
        for found in page["MetricAlarms"]
        if "EventsNotSentAlarm" in found["AlarmName"]
    ]
    for state in ("OK", "ALARM"):  # only a change is published
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue=state, StateReason="a test")
    assert inbox.receives(AlarmName=alarm)
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="the test has ended")


def test_the_documented_key_can_be_deployed(stack: DeployedStack) -> None:
    (key,) = created(stack.aws, "key", KEY_TEMPLATE.read_text()).values()
    policy = json.loads(stack.aws.client("kms").get_key_policy(KeyId=key, PolicyName="default")["Policy"])
    services = [s["Principal"]["Service"] for s in policy["Statement"] if "Service" in s["Principal"]]
    region = stack.aws.client("kms").meta.region_name
    of_aws = ("delivery.logs", "cloudwatch", "events")
    assert services == [f"logs.{region}.amazonaws.com", *(f"{name}.amazonaws.com" for name in of_aws)]
