"""Facts of tasks that wait for a token, and of the answers to it."""

from __future__ import annotations

import json
from typing import Any

from tests.facts.facts import (
    ASSUMED,
    DENIED,
    DEPLOYED,
    EMBEDDED,
    EVERYWHERE,
    REAL,
    Facts,
    documented,
    localstack,
    moto_verified,
)
from tests.facts.machines import PARTS, Tasks

ANSWERS: dict[str, dict[str, str]] = {
    "send_task_heartbeat": {},
    "send_task_success": {"output": "1"},
    "send_task_failure": {"error": "Refused", "cause": "none"},
}
TOKEN_LENGTH = 1024  # up to which the size of an item with tokens was computed
UNKNOWN = "AQCwAAAAKgAAAAMAAAAA" + "A" * 600  # the beginning of every token
ARNS = "CallerStateMachineArns restricts the roles that answer callers. Otherwise the parameter must "
FACTS = Facts("tokens", EVERYWHERE, given=Tasks)


@FACTS.row(
    "After heartbeats a task still waits. A success, a failure or a stop ends it; each answer after it is refused.",
    source=documented(
        "Step Functions API Reference, SendTaskSuccess, SendTaskFailure and SendTaskHeartbeat, TaskTimedOut"
    ),
    expected={
        "send_task_success": (["accepted"] * 3, ["TaskTimedOut"] * 3, "SUCCEEDED"),
        "send_task_failure": (["accepted"] * 3, ["TaskTimedOut"] * 3, "FAILED"),
        "stop": (["accepted"] * 3, ["TaskTimedOut"] * 3, "ABORTED"),
    },
)
def one_answer_counts(waiting: Tasks) -> dict[str, Any]:
    seen = {}
    for last in ("send_task_success", "send_task_failure", "stop"):
        token = waiting.begin()
        codes = [waiting.answer("send_task_heartbeat", token) for _ in range(2)]
        codes.append(waiting.stop(token) if last == "stop" else waiting.answer(last, token, **ANSWERS[last]))
        late = [waiting.answer(operation, token, **fields) for operation, fields in ANSWERS.items()]
        seen[last] = (codes, late, waiting.end_of(token)["status"])
    return seen


@FACTS.row(
    "An answer that is no JSON or too long is refused, and one with another token; the task still waits. The token is "
    "checked before the output.",
    source=(
        documented("Step Functions API Reference, SendTaskSuccess and SendTaskFailure"),
        moto_verified(
            "test_stepfunctions/parser/test_stepfunctions_dynamodb_integration.py",
            "test_send_task_failure_invalid_token",
        ),
    ),
    expected=["the token", "InvalidOutput", *["ValidationException"] * 3, "TaskDoesNotExist", "accepted"],
    on=DEPLOYED,
)
def refused_answers(waiting: Tasks) -> list[str]:
    token, long = waiting.begin(), json.dumps("x" * 262_144)
    code = waiting.answer("send_task_success", "bad_token", output="not JSON")
    return [
        # moto's test has the second code, LocalStack's test_sfn_send_task_outcome_with_no_such_token the first.
        "the token" if code in ("InvalidToken", "UnrecognizedClientException") else code,
        waiting.answer("send_task_success", token, output="{"),
        waiting.answer("send_task_success", token, output=long),
        waiting.answer("send_task_failure", token, error="e" * 257),
        waiting.answer("send_task_failure", token, cause="c" * 32_769),
        waiting.answer("send_task_success", UNKNOWN, output="1"),
        waiting.answer("send_task_success", token, output="1"),
    ]


@FACTS.row(
    "A task ends at its TimeoutSeconds, or at its HeartbeatSeconds without a heartbeat; both may be expressions.",
    source=documented("Step Functions Developer Guide, Task workflow state"),
    expected=[("States.Timeout", "TaskTimedOut")] * 2,
    on=DEPLOYED,
)
def timeouts_of_a_task(waiting: Tasks) -> list[tuple[str, str]]:
    tokens = [waiting.begin(TimeoutSeconds="{% 1 %}"), waiting.begin(TimeoutSeconds=60, HeartbeatSeconds="{% 1 %}")]
    errors = [waiting.end_of(token)["error"] for token in tokens]
    late = [waiting.answer("send_task_success", token, output="1") for token in tokens]
    return list(zip(errors, late, strict=True))


@FACTS.row(
    "Each attempt of a task has a token of its own.",
    source=documented("Step Functions Developer Guide, Wait for a callback with the task token"),
    expected=(True, "TaskTimedOut", "accepted"),
    on=DEPLOYED,
)
def token_of_an_attempt(waiting: Tasks) -> tuple[bool, str, str]:
    first = waiting.begin(Retry=[{"ErrorEquals": ["Again"], "IntervalSeconds": 1, "MaxAttempts": 1}])
    waiting.answer("send_task_failure", first, error="Again")
    second = waiting.next_token()
    answers = [waiting.answer("send_task_success", token, output="1") for token in (first, second)]
    return first != second, answers[0], answers[1]


@FACTS.row(
    "A refusal of an answer by an SDK task has the exception's name.",
    source=localstack(f"{PARTS}/services/test_aws_sdk_task_service.py", "test_sfn_send_task_outcome_with_no_such_token")
    + "; the others are documented: Step Functions API Reference, SendTaskSuccess",
    expected=[f"Sfn.{name}Exception" for name in ("InvalidToken", "TaskDoesNotExist", "InvalidOutput", "TaskTimedOut")],
    on=(EMBEDDED,),  # no policy names an invalid token
)
def refusals_of_a_task(waiting: Tasks) -> list[str]:
    token = waiting.begin()
    sent = (("bad_token", "1"), (UNKNOWN, "1"), (token, "{"), (token, "1"), (token, "1"))
    codes = [waiting.sent_by_a_workflow("sendTaskSuccess", each, Output=output) for each, output in sent]
    return [code for code in codes if code != "accepted"]


@FACTS.row(
    f"A task token has at most {TOKEN_LENGTH:,} characters, and no white space.",
    source=ASSUMED,
    expected=lambda token: token["characters"] <= TOKEN_LENGTH and not token["has_space"],
    unlike={"characters": 1600, "has_space": False},
    on=DEPLOYED,
    depends="request.schema.json permits 2,048 characters, and the size of an item with many callers is computed from "
    "1,024. Otherwise change both",
)
def length_of_a_token(waiting: Tasks) -> dict[str, Any]:
    token = waiting.begin()
    return {"characters": len(token), "has_space": " " in token}


@FACTS.row(
    "A role may send a heartbeat and an answer to a task without HeartbeatSeconds, if its policy names the ARN of the "
    "task's state machine.",
    source=ASSUMED,
    expected=["accepted", "accepted", "SUCCEEDED"],
    on=DEPLOYED,
    depends="AskCaller finds a caller that has gone by the heartbeat; if that is refused, it needs another way. "
    + ARNS
    + "name what AWS evaluates",
)
def permitted_caller(waiting: Tasks) -> list[str]:
    return _answered(waiting, waiting.begin())


def _answered(waiting: Tasks, token: str) -> list[str]:
    """The answers to a heartbeat and a success by a workflow, and how the task's execution ends."""
    beat = waiting.sent_by_a_workflow("sendTaskHeartbeat", token)
    answer = waiting.sent_by_a_workflow("sendTaskSuccess", token, Output="1")
    return [beat, answer, waiting.end_of(token)["status"]]


@FACTS.row(
    "That role may not, if its policy does not name the state machine.",
    source=ASSUMED,
    expected=DENIED[0],
    on=(REAL,),
    depends=ARNS + "be removed, since it restricts nothing",
)
def other_caller(waiting: Tasks) -> str:
    other = Tasks(waiting.machines.aws, "other")
    return waiting.sent_by_a_workflow("sendTaskSuccess", other.begin(), Output="1")


@FACTS.row(
    "The ARN of the state machine also permits an answer to a task inside its Distributed Map.",
    source=ASSUMED,
    expected=["accepted", "accepted", "SUCCEEDED"],
    on=DEPLOYED,
    depends=ARNS + "also list `<ARN>/<label>`, and its description state it",
)
def caller_in_a_distributed_map(waiting: Tasks) -> list[str]:
    states = waiting.asking()
    distributed = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    processor = distributed | {"StartAt": next(iter(states)), "States": states}
    each = {"Type": "Map", "Label": "Each", "Items": [1], "ItemProcessor": processor, "End": True}
    return _answered(waiting, waiting.begin_in({"Each": each}))
