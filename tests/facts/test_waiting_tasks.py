"""Facts of tasks that wait for a token, and of the answers to it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented, localstack, moto_verified
from tests.facts.workflows import PARTS, Workflows
from tests.simulation.aws import tasks
from tests.simulation.frozen import freeze

SEND = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
ANSWERS: dict[str, dict[str, str]] = {
    "send_task_heartbeat": {},
    "send_task_success": {"output": "1"},
    "send_task_failure": {"error": "Refused"},
}


class Tasks(ABC):
    """Executions of one task that waits for its token."""

    @abstractmethod
    def begin(self, **fields: Any) -> str:
        """Start an execution, with these fields of the task; return the token."""

    @abstractmethod
    def stop(self, token: str) -> str:
        """Stop its execution: "accepted"."""

    @abstractmethod
    def answer(self, operation: str, token: str, **fields: str) -> str:
        """The error's code, or "accepted"."""

    @abstractmethod
    def status(self, token: str) -> str:
        """The status of its execution, once an answer or a stop has ended it."""


class EngineTasks(Tasks):
    """Tasks of the embedded AWS, whose tokens are sent to a queue."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.workflows = Workflows(aws)
        self._url, _ = self.workflows.queue()
        self._executions: dict[str, str] = {}

    def begin(self, **fields: Any) -> str:
        arguments = {"QueueUrl": self._url, "MessageBody": {"token": "{% $states.context.Task.Token %}"}}
        task = {"Type": "Task", "Resource": SEND, "Arguments": arguments, "End": True, **fields}
        execution = self.workflows.start(self.workflows.create({"Ask": task}))
        token = self.next_token()
        self._executions[token] = execution
        return token

    def next_token(self) -> str:
        """The token of the next message."""
        return str(self.workflows.receive(self._url)["token"])

    def stop(self, token: str) -> str:
        return code_of(partial(self.workflows.stepfunctions.stop_execution, executionArn=self._executions[token]))

    def answer(self, operation: str, token: str, **fields: str) -> str:
        return code_of(partial(getattr(self.workflows.stepfunctions, operation), taskToken=token, **fields))

    def status(self, token: str) -> str:
        return str(self.end_of(token)["status"])

    def end_of(self, token: str) -> dict[str, Any]:
        """The description of its execution at its end."""
        return self.workflows.end_of(self._executions[token])


class SimulatedTasks(Tasks):
    """Tasks of the simulated AWS."""

    def __init__(self) -> None:
        self._tasks = tasks.tasks("t")

    def begin(self, **_: Any) -> str:
        self._tasks = tasks.tasks("t")
        return "t"

    def stop(self, token: str) -> str:
        self._tasks = tasks.end(self._tasks, token)
        return "accepted"

    def answer(self, operation: str, token: str, **fields: str) -> str:
        self._tasks, answer = tasks.perform(self._tasks, operation, freeze({"taskToken": token, **fields}), 0)
        return answer.error or "accepted"

    def status(self, token: str) -> str:
        status = str(self._tasks[token]["status"])
        return {"ENDED": "ABORTED"}.get(status, status)


FACTS: Facts[Callable[[], Tasks]] = Facts()


@FACTS.row(
    "A success, a failure or a stop ends a task; each answer after it is refused.",
    source=documented(
        "Step Functions API Reference, SendTaskSuccess, SendTaskFailure and SendTaskHeartbeat, TaskTimedOut"
    ),
    expected={
        "send_task_success": ("accepted", ["TaskTimedOut"] * 3, "SUCCEEDED"),
        "send_task_failure": ("accepted", ["TaskTimedOut"] * 3, "FAILED"),
        "stop": ("accepted", ["TaskTimedOut"] * 3, "ABORTED"),
    },
)
def one_answer_counts(make: Callable[[], Tasks]) -> dict[str, Any]:
    seen = {}
    for first in ("send_task_success", "send_task_failure", "stop"):
        waiting = make()
        token = waiting.begin()
        end = waiting.stop(token) if first == "stop" else waiting.answer(first, token, **ANSWERS[first])
        late = [waiting.answer(operation, token, **fields) for operation, fields in ANSWERS.items()]
        seen[first] = (end, late, waiting.status(token))
    return seen


@FACTS.row(
    "After heartbeats a task still waits for its answer.",
    source=documented("Step Functions API Reference, SendTaskHeartbeat"),
    expected=["accepted", "accepted", "accepted", "SUCCEEDED"],
)
def heartbeats_change_nothing(make: Callable[[], Tasks]) -> list[str]:
    waiting = make()
    token = waiting.begin()
    operations = ("send_task_heartbeat", "send_task_heartbeat", "send_task_success")
    return [*(waiting.answer(each, token, **ANSWERS[each]) for each in operations), waiting.status(token)]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_task_tokens(fact: Fact[Callable[[], Tasks]], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineTasks, aws), simulated=SimulatedTasks)


ENGINE: Facts[EngineTasks] = Facts()
UNKNOWN = "AQCwAAAAKgAAAAMAAAAA" + "A" * 600  # the beginning of every token


@ENGINE.row(
    "An answer that is no JSON or too long is refused, and one with another token; the task still waits.",
    source=documented("Step Functions API Reference, SendTaskSuccess and SendTaskFailure"),
    expected=["InvalidOutput", *["ValidationException"] * 3, "TaskDoesNotExist", "accepted"],
)
def refused_answers(waiting: EngineTasks) -> list[str]:
    token, long = waiting.begin(), json.dumps("x" * 262_144)
    return [
        waiting.answer("send_task_success", token, output="{"),
        waiting.answer("send_task_success", token, output=long),
        waiting.answer("send_task_failure", token, error="e" * 257),
        waiting.answer("send_task_failure", token, cause="c" * 32_769),
        waiting.answer("send_task_success", UNKNOWN, output="1"),
        waiting.answer("send_task_success", token, output="1"),
    ]


@ENGINE.row(
    "SendTaskSuccess checks the token before the output.",
    source=moto_verified(
        "test_stepfunctions/parser/test_stepfunctions_dynamodb_integration.py", "test_send_task_failure_invalid_token"
    ),
    expected="the token",
)
def token_is_checked_first(waiting: EngineTasks) -> str:
    code = waiting.answer("send_task_success", "bad_token", output="not JSON")
    # moto's test has the second code, LocalStack's test_sfn_send_task_outcome_with_no_such_token the first.
    return "the token" if code in ("InvalidToken", "UnrecognizedClientException") else code


@ENGINE.row(
    "A task ends at its TimeoutSeconds, or at its HeartbeatSeconds without a heartbeat; both may be expressions.",
    source=documented("Step Functions Developer Guide, Task workflow state"),
    expected=[("States.Timeout", "TaskTimedOut")] * 2,
)
def timeouts_of_a_task(waiting: EngineTasks) -> list[tuple[str, str]]:
    tokens = [waiting.begin(TimeoutSeconds="{% 1 %}"), waiting.begin(TimeoutSeconds=60, HeartbeatSeconds="{% 1 %}")]
    errors = [waiting.end_of(token)["error"] for token in tokens]
    late = [waiting.answer("send_task_success", token, output="1") for token in tokens]
    return list(zip(errors, late, strict=True))


@ENGINE.row(
    "Each attempt of a task has a token of its own.",
    source=documented("Step Functions Developer Guide, Wait for a callback with the task token"),
    expected=(True, "TaskTimedOut", "accepted"),
)
def token_of_an_attempt(waiting: EngineTasks) -> tuple[bool, str, str]:
    first = waiting.begin(Retry=[{"ErrorEquals": ["Again"], "IntervalSeconds": 0, "MaxAttempts": 1}])
    waiting.answer("send_task_failure", first, error="Again")
    second = waiting.next_token()
    answers = [waiting.answer("send_task_success", token, output="1") for token in (first, second)]
    return first != second, answers[0], answers[1]


@ENGINE.row(
    "A refusal of an answer by an SDK task has the exception's name.",
    source=localstack(f"{PARTS}/services/test_aws_sdk_task_service.py", "test_sfn_send_task_outcome_with_no_such_token")
    + "; the others are documented: Step Functions API Reference, SendTaskSuccess",
    expected=[f"Sfn.{name}Exception" for name in ("InvalidToken", "TaskDoesNotExist", "InvalidOutput", "TaskTimedOut")],
)
def refusals_of_a_task(waiting: EngineTasks) -> list[str]:
    token = waiting.begin()
    errors = []
    for given, output in (("bad_token", "1"), (UNKNOWN, "1"), (token, "{"), (token, "1"), (token, "1")):
        resource = "arn:aws:states:::aws-sdk:sfn:sendTaskSuccess"
        task = {"Type": "Task", "Resource": resource, "Arguments": {"TaskToken": given, "Output": output}, "End": True}
        errors += [ended["error"] for ended in [waiting.workflows.end({"Send": task})] if "error" in ended]
    return errors


@pytest.mark.parametrize("fact", ENGINE, ids=attrgetter("name"))
def test_task_tokens_of_the_engine(fact: Fact[EngineTasks], aws: EmbeddedAws) -> None:
    fact.check(embedded=EngineTasks(aws))
