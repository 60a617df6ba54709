"""Completion events reach producers by the rule and the queue of docs/completion-events.yaml."""

from __future__ import annotations

import json

from tests.deployed.deployed_stack import DeployedStack
from tests.deployed.deployed_worker import DeployedWorker
from tests.deployed.receivers import Inbox


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


def test_producers_receive_the_events_of_the_workers_requests(work: DeployedWorker, producer: Inbox) -> None:
    done, poison = work.request(), work.request(lines=None)
    work.send(done)
    work.send(poison)
    succeeded, dead = producer.receives_one(request_id=done), producer.receives_one(request_id=poison)
    assert (succeeded["status"], succeeded["result"]) == ("SUCCEEDED", json.loads(work.row(done)["result"]))
    assert (dead["status"], dead["code"]) == ("DEAD_LETTERED", "Poison")
