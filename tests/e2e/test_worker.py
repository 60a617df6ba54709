"""The deployed worker: one result or a dead letter, retries by the queue or by Scheduler."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from dev.emulator.downstream import Step
from tests.e2e.containers import kill_containers
from tests.e2e.deployed_worker import END, LINES, DeployedWorker
from tests.e2e.schedules import bring_forward
from tests.support.waiting import wait_until

RESULT = {"read": LINES.decode()}


def test_a_request_is_worked_on_and_its_result_recorded(work: DeployedWorker) -> None:
    request = work.request()
    work.send(request)
    row = work.wait_for(request, *END)
    assert (row["status"], row["attempts"]) == ("SUCCEEDED", "1")
    assert work.result(request) == RESULT


def test_f24_the_same_request_twice_has_one_effect(work: DeployedWorker) -> None:
    request = work.request()
    work.send(request)
    work.wait_for(request, "SUCCEEDED")
    work.send(request)
    wait_until(lambda: _is_empty(work), "the second message to be consumed")
    assert work.calls(request) == 1
    assert work.row(request)["attempts"] == "1"


@pytest.mark.parametrize("answer", ["slow_down", "error", "drop"])
def test_a_failing_downstream_is_called_again_later(work: DeployedWorker, answer: str) -> None:
    request = work.request(Step(answer=answer))
    work.send(request)
    row = work.wait_for(request, *END)
    assert (row["status"], row["attempts"], work.calls(request)) == ("SUCCEEDED", "2", 2)
    assert work.result(request) == RESULT


def test_an_attempt_that_takes_too_long_ends_and_is_retried(work: DeployedWorker) -> None:
    request = work.request(Step(seconds=60))
    work.send(request)
    row = work.wait_for(request, *END)
    assert (row["status"], row["attempts"]) == ("SUCCEEDED", "2")
    assert work.result(request) == RESULT


def test_a_distant_retry_has_a_schedule(work: DeployedWorker) -> None:
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    schedule = work.schedule(request, attempt=2)
    assert schedule is not None
    assert schedule["ActionAfterCompletion"] == "DELETE"
    bring_forward(work.scheduler, work.group, schedule["Name"], to=0)
    assert work.wait_for(request, *END)["status"] == "SUCCEEDED"
    assert work.result(request) == RESULT
    assert work.schedule(request, attempt=2) is None


def test_r3_r4_poison_is_dead_lettered_with_its_history_and_f26_redriven_it_is_the_same_request(
    work: DeployedWorker,
) -> None:
    work.empty_dead_letters()
    request = work.request(lines=None)
    work.send(request)
    dead_letter = work.dead_letter(request)
    assert (dead_letter["code"], dead_letter["retry_count"]) == ("Poison", "1")
    assert f"s3://{work.bucket}/{work.input_key(request)} does not exist" in dead_letter["reason"]
    assert [entry["attempt"] for entry in json.loads(dead_letter["history"])] == [1]
    work.wait_for(request, "DEAD_LETTERED")

    work.put_input(request)
    work.redrive()
    row = work.wait_for(request, "SUCCEEDED")
    assert row["attempts"] == "2"
    assert work.result(request) == RESULT


def test_a_request_that_always_fails_is_dead_lettered_after_the_policys_attempts(work: DeployedWorker) -> None:
    request = work.request(*[Step(answer="error")] * 9)
    work.send(request)
    dead_letter = work.dead_letter(request)
    assert (dead_letter["code"], dead_letter["retry_count"], work.calls(request)) == ("AttemptsExhausted", "3", 3)
    assert [entry["attempt"] for entry in json.loads(dead_letter["history"])] == [1, 2, 3]
    assert "result" not in work.row(request)


def test_a_worker_that_is_killed_during_its_work_costs_one_attempt(work: DeployedWorker) -> None:
    work.hide_for(1)
    request = work.request(Step(seconds=4))
    work.send(request)
    wait_until(lambda: work.calls(request), "the worker to ask the downstream")
    kill_containers(work.aws)
    work.end_lease(request)
    row = work.wait_for(request, *END)
    assert (row["status"], row["attempts"]) == ("SUCCEEDED", "2")
    assert "killed" in row["last_error"]
    assert work.result(request) == RESULT


def test_a_second_delivery_during_an_attempt_waits(work: DeployedWorker) -> None:
    work.hide_for(1)
    request = work.request(Step(seconds=3))
    work.send(request)
    row = work.wait_for(request, *END)
    wait_until(lambda: _is_empty(work), "the message to be consumed")
    assert (row["status"], row["attempts"], work.calls(request)) == ("SUCCEEDED", "1", 1)


def test_a_message_that_is_too_large_is_refused_or_dead_lettered_with_a_reason(work: DeployedWorker) -> None:
    work.empty_dead_letters()
    request = work.request()
    largest = 1_047_552
    padding = "x" * (largest - len(work.body(request).encode()) - len(', "padding": ""'))
    payload = {"bucket": work.bucket, "input_key": work.input_key(request), "padding": padding}
    with pytest.raises(ClientError, match=str(largest)):
        work.send(request, payload={**payload, "padding": padding + "x"})
    work.send(request, payload=payload)
    dead_letter = work.dead_letter(request)
    assert dead_letter["code"] == "TooLarge"
    assert "a request may have at most 1015808" in dead_letter["reason"]
    assert len(dead_letter["body"]) == largest


def _is_empty(work: DeployedWorker) -> bool:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    counts = work.sqs.get_queue_attributes(QueueUrl=work.queue_url, AttributeNames=names)["Attributes"]
    return all(counts[name] == "0" for name in names)
