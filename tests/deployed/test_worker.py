"""The deployed worker: one result or a dead letter, retries by the queue."""

from __future__ import annotations

import json

from dev.emulator.downstream import Step
from tests.deployed.deployed_stack import kill_containers
from tests.deployed.deployed_worker import END, LINES, DeployedWorker
from tests.waiting import wait_until

RESULT = {"read": LINES.decode()}


def test_an_attempt_that_takes_too_long_ends_and_is_retried(work: DeployedWorker) -> None:
    request = work.request(Step(seconds=60))
    work.send(request)
    row = work.wait_for(request, *END)
    assert (row["status"], row["attempts"]) == ("SUCCEEDED", "2")
    assert work.result(request) == RESULT


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
