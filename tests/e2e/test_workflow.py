"""Failures of the deployed workflow: requests are kept, and slots are freed only when no run lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.slots.executions import failure_reason
from slotkeeper.slots.protocol import Candidate
from slotkeeper.slots.request import execution_name
from tests.e2e.deployed_stack import JOB, DeployedStack, update
from tests.support.waiting import wait_until


def _released_after_its_run_ended(stack: DeployedStack, execution: str) -> bool:
    events = stack.stepfunctions.get_execution_history(executionArn=stack.arn(execution), maxResults=1000)["events"]
    released = next(e for e in events if e.get("stateEnteredEventDetails", {}).get("name") == "ReleaseSlot")
    (run,) = stack.runs(execution)
    return bool(run["CompletedOn"] <= released["timestamp"])


def test_f23_a_failed_job_leaves_its_request_with_error_and_cause_and_its_slot_free(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "r1")
    stack.end(process, "r1", how="fail")
    stack.wait_for_status(name, "FAILED")
    stack.wait_until_free(process)
    (kept,) = wait_until(lambda: stack.kept(process), "the request to be kept")
    assert (kept["execution_name"], kept["error"], kept["kept_by"]) == (name, "States.TaskFailed", "workflow")
    assert failure_reason(kept["cause"]) == "failed by the test"
    execution = stack.execution(name)
    assert execution is not None
    assert execution["error"] == "RequestFailed"
    assert json.loads(kept["body"]) == json.loads(execution["input"])


def test_a_kept_request_can_be_sent_again_as_its_next_attempt(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "r1")
    stack.end(process, "r1", how="fail")
    stack.wait_for_status(name, "FAILED")
    (kept,) = wait_until(lambda: stack.kept(process), "the request to be kept")
    body = json.loads(kept["body"])
    stack.close_gate(process, "r1")
    again = stack.send(process, body["request_id"], attempt=body["attempt"] + 1)
    stack.end(process, "r1")
    assert again != name
    stack.wait_for_status(again, "SUCCEEDED")


def test_a_failed_request_is_published_to_the_topic(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    sns = stack.aws.client("sns")
    queue = stack.sqs.create_queue(QueueName=f"notified-{process}")["QueueUrl"]
    arn = stack.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=stack.outputs["FailureTopicArn"], Protocol="sqs", Endpoint=arn)
    name = stack.send(process, "r1")
    stack.end(process, "r1", how="fail")
    (message,) = wait_until(lambda: stack.sqs.receive_message(QueueUrl=queue).get("Messages"), "the notification")
    notification = json.loads(json.loads(message["Body"])["Message"])
    assert notification["execution"] == stack.arn(name)
    assert (notification["request_kept"], notification["slot"]) == (True, "released")
    assert notification["reason"] == "failed by the test"


def test_f5_a_release_whose_answer_is_lost_frees_one_slot(stack: DeployedStack) -> None:
    process = stack.process(limit=2)
    names = [stack.send(process, f"r{n}") for n in range(2)]
    for name in names:
        stack.wait_until_running(name)
    stack.faults.add("ReleaseSlot", "lose_answer", execution=names[0], error="DynamoDB.InternalServerError")
    stack.end(process, "r0")
    stack.wait_for_status(names[0], "SUCCEEDED")
    assert stack.item(process).slots_in_use == 1
    assert stack.holders(process) == {names[1]}
    stack.end(process, "r1")
    stack.wait_until_free(process)


def test_f1_a_start_whose_answer_is_lost_starts_one_workflow(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    rule = stack.faults.add("StartExecution", "lose_answer")
    name = stack.send(process, "r1")
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
    assert stack.faults.fired(rule) == 1
    assert len(stack.runs(name)) == 1
    stack.wait_until_free(process)


def test_f3_the_workflow_waits_in_its_slot_for_a_run_that_glue_still_counts(stack: DeployedStack) -> None:
    job = stack.make_job("narrow-job", concurrent_runs=1)
    process = stack.process(limit=1, job=job)
    names = [stack.send(process, f"r{n}") for n in range(2)]
    stack.end(process, "r0", "r1")
    stack.wait_for_status(names[1], "SUCCEEDED")
    history = stack.stepfunctions.get_execution_history(executionArn=stack.arn(names[1]), maxResults=1000)["events"]
    errors = [event["taskFailedEventDetails"]["error"] for event in history if "taskFailedEventDetails" in event]
    refused = [error for error in errors if error.startswith("Glue.")]
    assert set(refused) == {"Glue.ConcurrentRunsExceededException"}
    assert len(stack.runs(names[1], job)) == 1
    assert stack.kept(process) == []


def test_a_run_whose_task_timed_out_is_stopped_before_the_slot_is_freed(stack: DeployedStack) -> None:
    """Step Functions itself does not stop the run."""
    process = stack.process(limit=1)
    stack.faults.add("RunGlueJob", "lose_answer", error="States.Timeout")
    name = stack.send(process, "r1")
    stack.wait_for_status(name, "FAILED")
    assert [run["JobRunState"] for run in stack.runs(name)] == ["STOPPED"]
    assert _released_after_its_run_ended(stack, name)
    (kept,) = wait_until(lambda: stack.kept(process), "the request to be kept")
    assert (kept["error"], kept["cause"]) == ("States.Timeout", "no cause given")


@pytest.mark.parametrize("error", ["Glue.InternalServiceException", "Glue.ThrottlingException"])
def test_the_workflow_waits_for_a_started_run_after_any_error_of_its_task(stack: DeployedStack, error: str) -> None:
    """The answer of StartJobRun was lost, or a poll was refused. Other runs fill the first page of the job's runs."""
    process = stack.process(limit=1)
    stack.faults.add("RunGlueJob", "lose_answer", error=error)
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    stack.end(process, "others")
    for _ in range(3):
        stack.glue.start_job_run(JobName=JOB, Arguments={"--gate": f"{process}/others"})
    wait_until(lambda: "ReadGlueRun" in stack.states_of(name), "the workflow to read its run")
    assert stack.holders(process) == {name}
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
    assert [run["JobRunState"] for run in stack.runs(name)] == ["SUCCEEDED"]
    assert stack.states_of(name).count("RunGlueJob") == 1
    assert _released_after_its_run_ended(stack, name)
    assert stack.kept(process) == []


def test_a_job_that_does_not_exist_fails_its_requests_and_holds_no_slot(stack: DeployedStack) -> None:
    process = stack.process(limit=1, job="no-such-job")
    name = stack.send(process, "r1")
    stack.wait_for_status(name, "FAILED")
    (kept,) = wait_until(lambda: stack.kept(process), "the request to be kept")
    assert kept["error"] == "Glue.EntityNotFoundException"
    stack.wait_until_free(process)


def test_a_throttled_start_is_tried_again_in_its_slot(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    stack.faults.add("RunGlueJob", "refuse", error="Glue.ThrottlingException", times=2)
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    assert stack.states_of(name).count("RunGlueJob") == 3
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
    assert len(stack.runs(name)) == 1


def _abort_while_running(stack: DeployedStack, process: str) -> str:
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(name))
    return name


@pytest.mark.parametrize("lives", [False, True], ids=["its run was stopped", "its run lives on"])
def test_f4_a_redriven_workflow_stops_its_run_then_returns_its_request_and_then_frees_its_slot(
    stack: DeployedStack, lives: bool
) -> None:
    process = stack.process(limit=1)
    if lives:
        stack.faults.add("RunGlueJob", "leave_running")
    name = _abort_while_running(stack, process)
    stack.stepfunctions.redrive_execution(executionArn=stack.arn(name))
    stack.wait_for_status(name, "FAILED")
    assert (stack.execution(name) or {})["error"] == "RequestReturned"
    assert [run["JobRunState"] for run in stack.runs(name)] == ["STOPPED"]
    assert _released_after_its_run_ended(stack, name)
    stack.end(process, "r1")
    stack.wait_for_status(execution_name(process, "r1", 2), "SUCCEEDED")


def test_f4_a_redriven_workflow_runs_nothing_in_a_slot_of_another_execution(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    name = _abort_while_running(stack, process)
    other = stack.send(process, "other")
    stack.run_janitor_until(lambda: stack.holders(process) == {other}, "the slot to go to the next request")
    stack.wait_until_running(other)
    stack.stepfunctions.redrive_execution(executionArn=stack.arn(name))
    stack.wait_for_status(name, "FAILED")
    assert stack.alive(process) == 1
    assert stack.holders(process) == {other}
    stack.end(process, "other", "r1")
    stack.wait_for_status(execution_name(process, "r1", 2), "SUCCEEDED")


def test_f13_the_request_of_a_slow_starter_whose_reservation_was_freed_is_returned(stack: DeployedStack) -> None:
    """The starter reserves and freezes. The janitor frees the slot. Then the starter starts its workflow."""
    process = stack.process(limit=1)
    frozen = stack.faults.add("StartExecution", "hold")
    name = stack.send(process, "r1")
    wait_until(lambda: stack.holders(process) == {name}, "the reservation")
    stack.age(process, name)
    assert stack.janitor()["SlotsReclaimed"] == 1
    stack.faults.remove(frozen)
    stack.wait_for_status(name, "FAILED")
    assert (stack.execution(name) or {})["error"] == "RequestReturned"
    assert stack.runs(name) == []
    stack.end(process, "r1")
    stack.wait_for_status(execution_name(process, "r1", 2), "SUCCEEDED")


def test_a_redeployment_keeps_holders_and_limit(stack: DeployedStack) -> None:
    """F8 and F10: a deployment with another limit must neither remove a holder nor overwrite an operator's limit."""
    name = "sample"
    stack.processes.set_limit(name, 7)
    stack.slots.reserve(Candidate(name, "sample-held"), 1e12)
    update(stack.aws, SlotLimit="2")
    assert stack.item(name).slot_limit == 7
    assert stack.holders(name) == {"sample-held"}
    stack.slots.cancel(name, "sample-held")


def test_the_deployed_sample_job_has_the_templates_settings(stack: DeployedStack) -> None:
    """Other tests use the gated job. `make run` runs the sample job."""
    job: dict[str, Any] = stack.glue.get_job(JobName=stack.outputs["GlueJobName"])["Job"]
    assert (job["MaxRetries"], job["ExecutionProperty"]["MaxConcurrentRuns"]) == (0, 500)
    assert stack.item("sample").target == stack.outputs["GlueJobName"] != JOB
