"""A workflow's event reaches a rule's queue, and a task can put a metric."""

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker, queue_arn
from tests.support.waiting import wait_until

TASK = {"Type": "Task", "Resource": "arn:aws:states:::events:putEvents", "End": True}


def _task(source: str, detail: Any) -> dict[str, Any]:
    entry = {"EventBusName": "default", "Source": source, "DetailType": "Test", "Detail": detail}
    return TASK | {"Arguments": {"Entries": [entry]}}


def test_an_object_arrives_as_the_detail(aws: EmbeddedAws, machine: MachineMaker, unique: Callable[[str], str]) -> None:
    sqs, events, rule = aws.client("sqs"), aws.client("events"), unique("rule")
    url = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    events.put_rule(Name=rule, EventPattern=json.dumps({"source": [rule], "detail": {"status": ["SUCCEEDED"]}}))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": queue_arn(aws, url)}])
    arn = machine({"Publish": _task(rule, "{% {'status': 'SUCCEEDED', 'missing': $states.input.nothing} %}")})
    machine.start(arn)
    (message,) = wait_until(lambda: sqs.receive_message(QueueUrl=url).get("Messages"), "the event")
    assert json.loads(message["Body"])["detail"] == {"status": "SUCCEEDED"}


def test_a_metric_can_be_put_by_a_task(aws: EmbeddedAws, machine: MachineMaker, unique: Callable[[str], str]) -> None:
    """The workflow's task for events that it could not publish. Needs no patch."""
    name = unique("Metric")
    data = [{"MetricName": name, "Dimensions": [{"Name": "service", "Value": "s"}], "Unit": "Count", "Value": 1}]
    put = {"Namespace": "Slotkeeper", "MetricData": data}
    resource = "arn:aws:states:::aws-sdk:cloudwatch:putMetricData"
    execution = machine.start(machine({"Count": TASK | {"Resource": resource, "Arguments": put}}))
    closed = machine.end_of(execution)
    assert closed["status"] == "SUCCEEDED", closed
    (metric,) = aws.client("cloudwatch").list_metrics(MetricName=name)["Metrics"]
    assert (metric["Namespace"], metric["Dimensions"]) == ("Slotkeeper", [{"Name": "service", "Value": "s"}])
