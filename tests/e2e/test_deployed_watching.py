"""The deployed alarms and their topic, and the key of docs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.deployed_stack import DeployedStack, created
from tests.support.waiting import wait_until

KEY_TEMPLATE = Path(__file__).parents[2] / "docs" / "kms-key.yaml"


def test_an_alarm_is_published_to_the_topic(stack: DeployedStack) -> None:
    cloudwatch, sns = stack.aws.client("cloudwatch"), stack.aws.client("sns")
    queue = stack.sqs.create_queue(QueueName="hears-alarms")["QueueUrl"]
    arn = stack.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscription = sns.subscribe(TopicArn=stack.outputs["FailureTopicArn"], Protocol="sqs", Endpoint=arn)
    (alarm,) = [
        found["AlarmName"]
        for page in cloudwatch.get_paginator("describe_alarms").paginate()
        for found in page["MetricAlarms"]
        if "EventsNotSentAlarm" in found["AlarmName"]
    ]
    for state in ("OK", "ALARM"):  # only a change is published
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue=state, StateReason="a test")
    heard: list[str] = []

    def rang() -> bool:
        for message in stack.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            heard.append(json.loads(json.loads(message["Body"])["Message"]).get("AlarmName", ""))
        return alarm in heard

    wait_until(rang, "the alarm's message")
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="the test has ended")
    sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])


def test_the_documented_key_can_be_deployed(stack: DeployedStack) -> None:
    (key,) = created(stack.aws, "key", KEY_TEMPLATE.read_text()).values()
    policy = json.loads(stack.aws.client("kms").get_key_policy(KeyId=key, PolicyName="default")["Policy"])
    services = [s["Principal"]["Service"] for s in policy["Statement"] if "Service" in s["Principal"]]
    region = stack.aws.client("kms").meta.region_name
    of_aws = ("delivery.logs", "cloudwatch", "events")
    assert services == [f"logs.{region}.amazonaws.com", *(f"{name}.amazonaws.com" for name in of_aws)]
