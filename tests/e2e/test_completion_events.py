"""The deployed stack's completion events reach producers by the rule and the queue of docs/completion-events.yaml."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.deployment import STACK_NAME
from dev.emulator.downstream import Step
from slotkeeper.events import BREAKER_SOURCE, SOURCE
from tests.e2e.deployed_stack import DeployedStack, created
from tests.e2e.deployed_worker import END, POLICY, DeployedWorker
from tests.support.completion_events import checked
from tests.support.waiting import wait_until

TEMPLATE = Path(__file__).parents[2] / "docs" / "completion-events.yaml"


class Producer:
    """A producer with docs/completion-events.yaml deployed. `source`: of the events that its rule matches."""

    def __init__(self, stack: DeployedStack, name: str = "producer", source: str = SOURCE) -> None:
        self._sqs = stack.sqs
        template = TEMPLATE.read_text().replace("source: [slotkeeper]", f"source: [{source}]")
        self._url = created(stack.aws, name, template, SlotkeeperStack=STACK_NAME)["EventQueueUrl"]
        self._heard: list[dict[str, Any]] = []

    def hears(self, **fields: Any) -> dict[str, Any]:
        """Wait for the one event whose detail has these fields."""

        def found() -> list[dict[str, Any]]:
            for message in self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", []):
                self._heard.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            return [event for event in self._heard if fields.items() <= event["detail"].items()]

        (event,) = wait_until(found, f"an event with {fields}")
        entry = {"Source": event["source"], "DetailType": event["detail-type"], "Detail": event["detail"]}
        detail = checked(entry)
        assert detail["stack"] == STACK_NAME
        return {"resources": event["resources"], **detail}


@pytest.fixture(scope="session")
def producer(deployed: DeployedStack) -> Producer:
    return Producer(deployed)


def test_producers_receive_events_of_success_and_failure(stack: DeployedStack, producer: Producer) -> None:
    process = stack.process(limit=2)
    good, bad = stack.send(process, "good"), stack.send(process, "bad")
    stack.end(process, "good")
    stack.end(process, "bad", how="fail")
    succeeded = producer.hears(process=process, status="SUCCEEDED")
    failed = producer.hears(process=process, status="FAILED")
    for event, execution, request_id in ((succeeded, good, "good"), (failed, bad, "bad")):
        assert (event["execution_arn"], event["request_id"]) == (stack.arn(execution), request_id)
        assert stack.arn(execution) in event["resources"]
        assert event["started_at"] <= event["finished_at"]
        stack.wait_for_status(execution, event["status"])
    assert (failed["error"], failed["cause"]) == ("States.TaskFailed", "failed by the test")
    assert stack.outputs["FailedRequestQueueUrl"].endswith("/" + failed["kept_in"])


def test_producers_receive_the_event_of_an_aborted_request(stack: DeployedStack, producer: Producer) -> None:
    process = stack.process()
    execution = stack.send(process, "r1")
    stack.wait_until_running(execution)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(execution), error="ByHand", cause="a test")
    event = producer.hears(execution_name=execution)
    assert (event["status"], event["error"], event["cause"]) == ("FAILED", "ByHand", "a test")


def test_producers_receive_the_event_of_an_invalid_message(stack: DeployedStack, producer: Producer) -> None:
    process = stack.process()
    stack.send_raw("{", process)
    event = producer.hears(process=process)
    assert (event["status"], event["code"]) == ("DEAD_LETTERED", "InvalidRequest")
    assert stack.outputs["RequestDeadLetterQueueUrl"].endswith("/" + event["kept_in"])


def test_producers_receive_the_event_of_a_request_that_ends_without_a_start(
    stack: DeployedStack, producer: Producer
) -> None:
    process = stack.process()
    name = stack.send(process, "r1", start_before="2026-01-01T00:00:00Z")
    event = producer.hears(process=process, request_id="r1")
    assert (event["status"], event["code"]) == ("DEAD_LETTERED", "TooLate")
    assert event["kept_in"] == stack.outputs["RequestTableName"]
    wait_until(lambda: stack.row(process, name).open is None, "its end to be published")


def test_producers_receive_the_events_of_the_workers_requests(work: DeployedWorker, producer: Producer) -> None:
    done, poison = work.request(), work.request(lines=None)
    work.send(done)
    work.send(poison)
    succeeded, dead = producer.hears(request_id=done), producer.hears(request_id=poison)
    assert (succeeded["status"], succeeded["result"]) == ("SUCCEEDED", json.loads(work.row(done)["result"]))
    assert (dead["status"], dead["code"]) == ("DEAD_LETTERED", "Poison")


def test_a_breaker_that_opens_and_closes_is_stored_measured_and_published(
    work: DeployedWorker, stack: DeployedStack
) -> None:
    consumer = Producer(stack, "operator", BREAKER_SOURCE)
    breaker = {"enabled": True, "failure_threshold": 2, "recovery_seconds": 1}
    work.use_policy(json.dumps(POLICY | {"downstream": {"breaker": breaker}}))
    request = work.request(Step(answer="error"), Step(answer="error"))
    work.send(request)
    opened, closed = consumer.hears(state="OPEN"), consumer.hears(state="CLOSED")
    assert work.wait_for(request, *END)["status"] == "SUCCEEDED"
    changes = [(change.to, change.why) for change in work.downstreams.read("default").breaker.changes]
    assert changes[-2:] == [("OPEN", "2 of the last 18 calls failed"), ("CLOSED", "the probe succeeded")]
    assert opened["epoch"] < closed["epoch"]
    # The invocation of the probe may end before that of the failure that opened the breaker, which still publishes.
    names = "BreakerOpen", "PermittedCallers"
    wait_until(
        lambda: [[1, 0], [1, 3]] in [[line.get(name) for name in names] for line in work.metric_lines()],
        "the metrics of the probe",
    )


def test_an_outage_of_eventbridge_affects_only_a_metric(stack: DeployedStack, metric: Callable[[str], float]) -> None:
    process = stack.process(limit=2)
    before = metric("EventsNotSent")
    for state in ("PublishSuccessEvent", "PublishFailureEvent"):
        stack.faults.add(state, "refuse", error="EventBridge.FailedEntry", times=0)
    good, bad = stack.send(process, "good"), stack.send(process, "bad")
    stack.end(process, "good")
    stack.end(process, "bad", how="fail")
    assert stack.wait_for_status(good, "SUCCEEDED", "FAILED") == "SUCCEEDED"
    assert stack.wait_for_status(bad, "SUCCEEDED", "FAILED") == "FAILED"
    stack.wait_until_free(process)
    assert metric("EventsNotSent") == before + 2


@pytest.fixture
def metric(stack: DeployedStack) -> Callable[[str], float]:
    cloudwatch = stack.aws.client("cloudwatch")

    def total(name: str) -> float:
        dimensions = [{"Name": "service", "Value": STACK_NAME}]
        statistics = cloudwatch.get_metric_statistics(
            Namespace="Slotkeeper",
            MetricName=name,
            Dimensions=dimensions,
            StartTime="2026-01-01T00:00:00Z",
            EndTime="2100-01-01T00:00:00Z",
            Period=3600,
            Statistics=["Sum"],
        )
        return sum(point["Sum"] for point in statistics["Datapoints"])

    return total
