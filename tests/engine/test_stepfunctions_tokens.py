"""stepfunctions_tokens: a task that waits for its token, and the answers to it."""

import json
from collections.abc import Callable

from dev.emulator.engine.patches.stepfunctions_tokens import PREFIX
from dev.emulator.faults import Faults
from tests.engine.conftest import MachineMaker
from tests.engine.waiting_callers import Callers
from tests.support.waiting import wait_until


def test_the_answer_is_the_tasks_result_and_a_second_one_is_refused(callers: Callers) -> None:
    execution, token = callers.call(Output="{% $states.result.n + 1 %}")
    assert 500 < len(token) <= 1024
    assert callers.machine.describe(execution)["status"] == "RUNNING"
    callers.succeed(token, {"n": 1})
    assert callers.refused("send_task_success", token, output="{}") == "TaskTimedOut"
    closed = callers.end_of(execution)
    assert (closed["status"], closed["output"]) == ("SUCCEEDED", "2")
    refused = [callers.refused("send_task_failure", token), callers.refused("send_task_heartbeat", token)]
    assert refused == ["TaskTimedOut", "TaskTimedOut"]
    history = callers.machine.history(execution)
    assert [kind for kind in history if kind.startswith("Task")][:3] == [
        "TaskStateEntered",
        "TaskScheduled",
        "TaskSubmitted",
    ]


def test_a_failure_is_the_tasks_error_and_can_be_caught(callers: Callers) -> None:
    execution, token = callers.call()
    callers.client.send_task_failure(taskToken=token, error="Refused", cause="too large")
    closed = callers.end_of(execution)
    assert (closed["status"], closed["error"], closed["cause"]) == ("FAILED", "Refused", "too large")


def test_a_map_asks_for_each_item_up_to_its_concurrency_and_collects_the_answers_in_order(
    callers: Callers, machine: MachineMaker
) -> None:
    states = {
        "Each": {
            "Type": "Map",
            "Items": "{% $states.input.items %}",
            "MaxConcurrency": 2,
            "ItemProcessor": {"StartAt": "Ask", "States": callers.asks()},
            "Output": "{% $states.result %}",
            "End": True,
        }
    }
    execution = machine.start(machine(states), {"items": [1, 2, 3]})
    first, second = callers.received(), callers.received()
    assert {first["item"], second["item"]} == {1, 2}
    assert first["token"] != second["token"]
    callers.succeed(second["token"], second["item"] * 10)
    third = callers.received()  # only now: two wait at most
    callers.succeed(third["token"], third["item"] * 10)
    callers.succeed(first["token"], first["item"] * 10)
    assert json.loads(callers.end_of(execution)["output"]) == [10, 20, 30]
    events = machine.client.get_execution_history(executionArn=execution)["events"]
    sent = [event for event in events if event["type"] == "TaskSubmitted"]
    asked = [events[event["previousEventId"] - 1]["taskScheduledEventDetails"]["parameters"] for event in sent]
    assert [json.loads(each)["MessageBody"]["item"] for each in asked][2] == 3
    ids = [json.loads(event["taskSubmittedEventDetails"]["output"])["MessageId"] for event in sent]
    assert len(set(ids)) == 3


def test_a_token_expires_with_the_tasks_timeout(callers: Callers) -> None:
    execution, token = callers.call(TimeoutSeconds="{% $states.input.a %}")
    assert callers.end_of(execution)["error"] == "States.Timeout"
    assert callers.refused("send_task_success", token, output="1") == "TaskTimedOut"


def test_heartbeats_postpone_the_end_of_a_silent_task_and_not_its_timeout(callers: Callers) -> None:
    silent, _ = callers.call(HeartbeatSeconds=1, TimeoutSeconds=60)
    beating, token = callers.call(HeartbeatSeconds="{% 1 + $states.input.a %}", TimeoutSeconds=3)
    callers.client.send_task_heartbeat(taskToken=token)
    assert callers.end_of(silent)["error"] == "States.Timeout"

    def expired() -> bool:
        try:
            callers.client.send_task_heartbeat(taskToken=token)
        except callers.client.exceptions.TaskTimedOut:
            return True
        return False

    wait_until(expired, "the timeout")
    assert callers.end_of(beating)["error"] == "States.Timeout"


def test_a_token_expires_when_its_execution_is_stopped(callers: Callers) -> None:
    execution, token = callers.call()
    callers.client.send_task_heartbeat(taskToken=token)
    callers.client.stop_execution(executionArn=execution)
    assert callers.refused("send_task_heartbeat", token) == "TaskTimedOut"


def test_each_attempt_of_a_task_has_its_own_token(callers: Callers) -> None:
    retry = [{"ErrorEquals": ["Again"], "IntervalSeconds": 0, "MaxAttempts": 1}]
    execution, earlier = callers.call(Retry=retry)
    callers.client.send_task_failure(taskToken=earlier, error="Again")
    later = callers.received()["token"]
    assert later != earlier
    assert callers.refused("send_task_success", earlier, output="1") == "TaskTimedOut"
    callers.succeed(later, 1)
    assert callers.end_of(execution)["output"] == "1"


def test_a_message_that_cannot_be_sent_fails_the_task(
    callers: Callers, faults: Faults, unique: Callable[[str], str]
) -> None:
    name = unique("caller")
    faults.add("Ask", "refuse", execution=name, error="SQS.AmazonSQSException")
    execution = callers.machine.start(callers.machine(callers.asks()), {"a": 1}, name)
    assert callers.end_of(execution)["error"] == "SQS.AmazonSQSException"


def test_answers_that_the_api_refuses_leave_the_task_waiting(callers: Callers) -> None:
    execution, token = callers.call()
    assert callers.refused("send_task_success", token, output="{") == "InvalidOutput"
    assert callers.refused("send_task_success", token, output=json.dumps("x" * 262_144)) == "ValidationException"
    assert callers.refused("send_task_failure", token, error="e" * 257) == "ValidationException"
    assert callers.refused("send_task_failure", token, cause="c" * 32_769) == "ValidationException"
    assert callers.refused("send_task_success", "a-word", output="1") == "InvalidToken"
    assert callers.refused("send_task_success", PREFIX + "A" * 600, output="1") == "TaskDoesNotExist"
    callers.succeed(token, 1)
    assert callers.end_of(execution)["output"] == "1"


def test_a_workflow_answers_by_tasks_and_gets_the_refusals_as_errors(callers: Callers) -> None:
    execution, token = callers.call()
    assert callers.sends("sendTaskHeartbeat", token)["output"] == "{}"
    assert callers.sends("sendTaskSuccess", token, Output="{% $string({'n': 1}) %}")["output"] == "{}"
    assert json.loads(callers.end_of(execution)["output"]) == {"n": 1}
    spent = callers.sends("sendTaskHeartbeat", token)
    assert (spent["error"], spent["cause"]) == (
        "Sfn.TaskTimedOutException",
        "Task Timed Out: 'Provided task does not exist anymore'",
    )
    assert callers.sends("sendTaskFailure", "a-word", Error="E", Cause="C")["error"] == "Sfn.InvalidTokenException"
    unknown = callers.sends("sendTaskSuccess", PREFIX + "A" * 600, Output={"n": 1})
    assert unknown["error"] == "Sfn.TaskDoesNotExistException"
    assert callers.sends("sendTaskSuccess", token, Output="{")["error"] == "Sfn.InvalidOutputException"


def test_a_workflow_answers_a_failure_and_an_object(callers: Callers) -> None:
    failed, first = callers.call()
    succeeded, second = callers.call()
    callers.sends("sendTaskFailure", first, Error="E", Cause="C")
    callers.sends("sendTaskSuccess", second, Output={"n": 1})
    assert (callers.end_of(failed)["error"], callers.end_of(failed)["cause"]) == ("E", "C")
    assert json.loads(callers.end_of(succeeded)["output"]) == {"n": 1}
