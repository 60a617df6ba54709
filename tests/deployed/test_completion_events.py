"""Completion events reach producers by the rule and the queue of docs/completion-events.yaml; alarms their topic."""

from __future__ import annotations

import json

from dev.emulator.downstream import Step
from slotkeeper.events import BREAKER_SOURCE
from tests.deployed.deployed_stack import DeployedStack
from tests.deployed.deployed_worker import END, POLICY, DeployedWorker
from tests.deployed.receivers import Inbox, consumer
from tests.waiting import wait_until


def test_producers_receive_events_of_success_and_failure(stack: DeployedStack, producer: Inbox) -> None:
    process = stack.process(limit=2)
    good, bad = stack.send(process, "good"), stack.send(process, "bad")
    stack.end(process, "good")
    stack.end(process, "bad", how="fail")
    succeeded = producer.receives_one(process=process, status="SUCCEEDED")
    failed = producer.receives_one(process=process, status="FAILED")
    for event, execution, request_id in ((succeeded, good, "good"), (failed, bad, "bad")):
        assert (event["execution_arn"], event["request_id"]) == (stack.arn(execution), request_id)
        assert event["started_at"] <= event["finished_at"]
        stack.wait_for_status(execution, event["status"])
    assert (failed["error"], failed["cause"]) == ("States.TaskFailed", "failed by the test")
    assert failed["kept_in"] == stack.outputs["RequestTableName"]


def test_producers_receive_the_event_of_an_aborted_request(stack: DeployedStack, producer: Inbox) -> None:
    process = stack.process()
    execution = stack.send(process, "r1")
    stack.wait_until_running(execution)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(execution), error="ByHand", cause="a test")
    event = producer.receives_one(execution_name=execution)
    assert (event["status"], event["error"], event["cause"]) == ("FAILED", "ByHand", "a test")


def test_producers_receive_the_event_of_an_invalid_message(stack: DeployedStack, producer: Inbox) -> None:
    process = stack.process()
    stack.send_raw("{", process)
    event = producer.receives_one(process=process)
    assert (event["status"], event["code"]) == ("DEAD_LETTERED", "InvalidRequest")
    assert stack.outputs["RequestDeadLetterQueueUrl"].endswith("/" + event["kept_in"])


def test_producers_receive_the_event_of_a_request_that_ends_without_a_start(
    stack: DeployedStack, producer: Inbox
) -> None:
    process = stack.process()
    stack.send(process, "r1", start_before="2026-01-01T00:00:00Z")
    event = producer.receives_one(process=process, request_id="r1")
    assert (event["status"], event["code"]) == ("DEAD_LETTERED", "TooLate")
    assert event["kept_in"] == stack.outputs["RequestTableName"]


def test_producers_receive_the_events_of_the_workers_requests(work: DeployedWorker, producer: Inbox) -> None:
    done, poison = work.request(), work.request(lines=None)
    work.send(done)
    work.send(poison)
    succeeded, dead = producer.receives_one(request_id=done), producer.receives_one(request_id=poison)
    assert (succeeded["status"], succeeded["result"]) == ("SUCCEEDED", json.loads(work.row(done)["result"]))
    assert (dead["status"], dead["code"]) == ("DEAD_LETTERED", "Poison")


def test_a_breaker_that_opens_and_closes_is_stored_measured_and_published(
    work: DeployedWorker, stack: DeployedStack
) -> None:
    operator = consumer(stack.aws, "operator", BREAKER_SOURCE)
    breaker = {"enabled": True, "failure_threshold": 2, "recovery_seconds": 1}
    work.use_policy(json.dumps(POLICY | {"downstream": {"breaker": breaker}}))
    request = work.request(Step(answer="error"), Step(answer="error"))
    work.send(request)
    opened, closed = operator.receives_one(state="OPEN"), operator.receives_one(state="CLOSED")
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


def test_an_alarm_is_published_to_the_topic(stack: DeployedStack, notices: Inbox) -> None:
    cloudwatch = stack.aws.client("cloudwatch")
    (alarm,) = [
        found["AlarmName"]
        for page in cloudwatch.get_paginator("describe_alarms").paginate()
        for found in page["MetricAlarms"]
        if "EventsNotSentAlarm" in found["AlarmName"]
    ]
    for state in ("OK", "ALARM"):  # only a change is published
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue=state, StateReason="a test")
    assert notices.receives(AlarmName=alarm)
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="the test has ended")
