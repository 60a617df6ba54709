"""Facts of Step Functions that need executions: names of errors, children and callers."""

from __future__ import annotations

import json
from typing import Any

from dev.smoke import own_resources as own
from dev.smoke.check_context import CheckContext
from dev.smoke.facts import Fact, NotShown
from dev.smoke.state_facts import NUMBERS

BIG = 200_000  # characters; twice as many exceed the 256 KiB of a state's input or result
TOKEN_LENGTH = 1024  # up to which the size of an item with tokens was computed


def _run_chain(
    context: CheckContext,
    suffix: str,
    states: dict[str, str],
    variables: dict[str, Any],
    name: str,
    given: Any = None,
    *,
    role: str = "",
    caught: str = "States.ALL",
) -> dict[str, Any]:
    """What deployed states answer, one after the other. Raises NotShown if the chain did not succeed.

    Args:
        states: name in the answer -> the deployed state.
    """
    deployed = {key: context.stack.machine["definition"]["States"][state] for key, state in states.items()}
    machine = own.machine(context, suffix, own.chain(deployed, variables, caught), role)
    execution = own.ended(context, own.start(context, machine, name, given))
    if execution["status"] != "SUCCEEDED":
        raise NotShown(f"the check's execution ended as {execution['status']}: {execution.get('cause', '')[:500]}")
    output: dict[str, Any] = json.loads(execution["output"])
    return output


# ---------------------------------------------------------------------------------------- names of errors ("errors")


def _errors(context: CheckContext) -> dict[str, Any]:
    """What the deployed states answer without a slot and a row, and to a ring."""
    states = {name: name for name in ("ConfirmSlot", "RecordOutcome", "Ring")}
    process = f"{context.run}-{context.check}"  # no such process exists
    variables = {"run_state": "SUCCEEDED", "failure": {}}
    return _run_chain(context, "errors", states, variables, process, {"process": process, "request_id": "1"})


def _errors_of(context: CheckContext, *states: str) -> list[str]:
    return [context.once(_errors)[state].get("Error", "") for state in states]


ERROR_FACTS = (
    Fact(
        "condition-refused",
        "Which error does dynamodb:updateItem return when its condition is refused?",
        "DynamoDB.ConditionalCheckFailedException",
        "S1: ConfirmSlot, RecordOutcome and ReleaseSlot catch it by this name. Otherwise change the name in every "
        "Retry and Catch of the workflow",
        lambda context: _errors_of(context, "ConfirmSlot", "RecordOutcome"),
        lambda answer: set(answer) == {"DynamoDB.ConditionalCheckFailedException"},
    ),
    Fact(
        "send-by-the-workflow",
        "Does sqs:sendMessage of a workflow send to a standard queue?",
        "yes: the result has a MessageId",
        "S6: Ring starts the dispatch after a release. Otherwise only the janitor starts what waits: check the "
        "workflow's role, and the arguments of Ring",
        lambda context: context.once(_errors)["Ring"],
        lambda answer: "MessageId" in answer["result"],
    ),
)


# ------------------------------------------------------------------------------------- child executions ("children")

_CHILD = {
    "QueryLanguage": "JSONata",
    "StartAt": "Choose",
    "States": {
        "Choose": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $states.input.do = 'wait' %}", "Next": "Wait"},
                {"Condition": "{% $states.input.do = 'big' %}", "Next": "Big"},
            ],
            "Default": "Done",
        },
        "Wait": {"Type": "Wait", "Seconds": 4, "Next": "Done"},
        "Big": {"Type": "Pass", "Output": f"{{% $pad('', {BIG}, 'x') %}}", "End": True},
        "Done": {"Type": "Succeed", "Output": {}},
    },
}


def _child_role(context: CheckContext) -> str:
    """The permissions of a workflow's role for its state machines, for those of the check alone."""
    mine = own.name_of(context, "*")
    rule = "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    return own.role(
        context,
        "child-role",
        (["states:StartExecution"], "states", f"stateMachine:{mine}"),
        (["states:DescribeExecution", "states:StopExecution"], "states", f"execution:{mine}"),
        (["events:PutTargets", "events:PutRule", "events:DescribeRule"], "events", rule),
    )


def _child(context: CheckContext) -> str:
    return own.machine(context, "child", _CHILD)


def _with_child(context: CheckContext, states: dict[str, str], name: str, given: Any, caught: str) -> dict[str, Any]:
    variables = {"target": context.once(_child), "timeout_minutes": 5, "failure": {"error": "Smoke"}}
    role = context.once(_child_role)
    return _run_chain(context, f"parent-{name}", states, variables, name, {"input": given}, role=role, caught=caught)


def _children(context: CheckContext) -> dict[str, Any]:
    """The answers of RunStateMachine, twice with a child of one name, and the child's input."""
    states = {"Run": "RunStateMachine", "RunAgain": "RunStateMachine"}
    answers = _with_child(context, states, "numbers", NUMBERS, "States.ALL")
    child = f"{context.once(_child).replace(':stateMachine:', ':execution:')}:numbers"
    return answers | {"child_input": context.execution(child).get("input", "{}")}


def _large_child(context: CheckContext) -> dict[str, Any]:
    """A child whose input and output exceed 256 KiB together, and the read of it, where only this name is caught."""
    states = {"Run": "RunStateMachine", "Read": "ReadChild"}
    given = {"do": "big", "text": "x" * BIG}
    try:
        return _with_child(context, states, "big", given, "States.DataLimitExceeded")
    except NotShown as error:  # not caught by its name
        return {"uncaught": str(error)}


def _order(context: CheckContext) -> list[str]:
    """The children that succeeded, as they are listed: `slow` started first and ended last."""
    child = context.once(_child)
    for arn in [own.start(context, child, "slow", {"do": "wait"}), own.start(context, child, "quick")]:
        own.ended(context, arn)

    def listed() -> list[str]:
        answer = context.stack.client("stepfunctions").list_executions(stateMachineArn=child, statusFilter="SUCCEEDED")
        names = [each["name"] for each in answer["executions"] if each["name"] in ("slow", "quick")]
        return names if len(names) == 2 else []

    return context.wait(listed, "both executions in the list", context.timings.start)


CHILD_FACTS = (
    Fact(
        "name-taken",
        "Which error does states:startExecution.sync return when a closed execution has the name?",
        "StepFunctions.ExecutionAlreadyExistsException, and it is not retried by RunStateMachine",
        "ReadChild then reads the child of that name. Otherwise list the name in the runbook; no state matches it",
        lambda context: context.once(_children)["RunAgain"],
        lambda answer: answer["Error"] == "StepFunctions.ExecutionAlreadyExistsException",
    ),
    Fact(
        "numbers-of-a-child",
        "What does a child receive for numbers of 15 and 16 digits?",
        "both are unchanged",
        "a child works on the numbers that were sent. Otherwise refuse such numbers in `input`, as text is exact",
        lambda context: json.loads(context.once(_children)["child_input"], parse_int=str, parse_float=str),
        lambda digits: all(digits[name] == str(number) for name, number in NUMBERS.items()),
    ),
    Fact(
        "data-limit-of-a-child",
        "Are States.DataLimitExceeded of startExecution.sync and of the read of the child caught by this name?",
        "yes, both",
        "S7: a child that succeeded with a large output is settled by its own status, and its work is not repeated. "
        "Otherwise limit the child's input and output together, since its success cannot be read",
        _large_child,
        lambda answer: {answer["Run"]["Error"], answer["Read"]["Error"]} == {"States.DataLimitExceeded"},
    ),
    Fact(
        "order-of-closed-executions",
        "In which order does ListExecutions return closed executions of one status?",
        "the one that ended last comes first, whenever it started",
        "S4: the janitor ends its reading of the list at the first execution that ended before its last run. "
        "Otherwise it reads whole lists",
        _order,
        lambda names: names == ["slow", "quick"],
    ),
)


# ---------------------------------------------------------------------------------------------- callers ("callers")


def _asking(url: str) -> dict[str, Any]:
    ask = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {"QueueUrl": url, "MessageBody": {"task_token": "{% $states.context.Task.Token %}"}},
        "TimeoutSeconds": 300,
        "End": True,
    }
    return {"StartAt": "Ask", "States": {"Ask": ask}}


def _caller_role(context: CheckContext) -> str:
    """It may send to the check's queue, and answer the machines `caller` and `distributed`, not the machine `other`."""
    mine = own.name_of(context, "*")
    answers = ["states:SendTaskSuccess", "states:SendTaskHeartbeat"]
    return own.role(
        context,
        "caller-role",
        (["sqs:SendMessage"], "sqs", mine),
        *((answers, "states", f"stateMachine:{own.name_of(context, name)}") for name in ("caller", "distributed")),
        # A Distributed Map starts its iterations as executions of its own state machine.
        (["states:StartExecution"], "states", f"stateMachine:{mine}"),
        (["states:DescribeExecution", "states:StopExecution"], "states", f"execution:{mine}"),
    )


def _caller_queue(context: CheckContext) -> str:
    return own.queue(context, "asked")


def _token(context: CheckContext, suffix: str, definition: dict[str, Any]) -> tuple[str, str]:
    """Start a machine that asks for an answer; its execution's ARN and the token that it sent."""
    machine = own.machine(context, suffix, {"QueryLanguage": "JSONata"} | definition, context.once(_caller_role))
    arn = own.start(context, machine, suffix)
    url = context.once(_caller_queue)
    message = own.receive(context, url, f"the token of {suffix}")
    context.stack.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return arn, json.loads(message["Body"])["task_token"]


def _caller(context: CheckContext) -> tuple[str, str]:
    return _token(context, "caller", _asking(context.once(_caller_queue)))


def _answered(context: CheckContext, suffix: str, caller: tuple[str, str]) -> dict[str, Any]:
    """What the workflow's own states for a caller answer under the role of the check, and how the caller ended."""
    arn, token = caller
    states, variables = {"AskCaller": "AskCaller", "AnswerSuccess": "AnswerSuccess"}, {"task_token": token}
    role = context.once(_caller_role)
    answers = _run_chain(context, f"answers-{suffix}", states, variables | {"answer": "{}"}, "answers", role=role)
    waits = "Error" in answers["AnswerSuccess"]
    return answers | {"caller": "waits" if waits else own.ended(context, arn)["status"]}


def _distributed(context: CheckContext) -> dict[str, Any]:
    """A caller inside a Distributed Map: its token is answered under the permission for the Map's own state machine."""
    distributed = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    processor = distributed | _asking(context.once(_caller_queue))
    each = {"Type": "Map", "Label": "Each", "Items": [1], "ItemProcessor": processor, "End": True}
    caller = _token(context, "distributed", {"StartAt": "Each", "States": {"Each": each}})
    return _answered(context, "distributed", caller)


_ARNS = "CallerStateMachineArns restricts the roles that answer callers. Otherwise the parameter must "

CALLER_FACTS = (
    Fact(
        "token-length",
        "How long is a task token?",
        f"at most {TOKEN_LENGTH:,} characters without white space",
        "request.schema.json permits 2,048 characters, and the size of an item with many callers is computed from "
        "1,024. Otherwise change both",
        lambda context: {"characters": len(context.once(_caller)[1]), "has_space": " " in context.once(_caller)[1]},
        lambda answer: answer["characters"] <= TOKEN_LENGTH and not answer["has_space"],
    ),
    Fact(
        "permitted-caller",
        "May a role answer a task without HeartbeatSeconds whose state machine's ARN its policy names?",
        "yes: heartbeat and answer are accepted, and the caller succeeds",
        "AskCaller finds a caller that has gone by the heartbeat; if that is refused, it needs another way. "
        + _ARNS
        + "name what AWS evaluates",
        lambda context: _answered(context, "caller", context.once(_caller)),
        lambda answer: answer["caller"] == "SUCCEEDED" and "Error" not in answer["AskCaller"],
    ),
    Fact(
        "other-caller",
        "Which error does the task return when the policy does not name the caller's state machine?",
        "it contains AccessDenied",
        _ARNS + "be removed, since it restricts nothing",
        lambda context: _answered(context, "other", _token(context, "other", _asking(context.once(_caller_queue)))),
        lambda answer: "AccessDenied" in json.dumps(answer["AnswerSuccess"]),
        not_here="the embedded AWS enforces no IAM policy",
    ),
    Fact(
        "caller-in-a-distributed-map",
        "Does the ARN of the state machine also permit the answer to a task inside its Distributed Map?",
        "yes: the Map succeeds",
        _ARNS + "also list `<ARN>/<label>`, and its description say so",
        _distributed,
        lambda answer: answer["caller"] == "SUCCEEDED",
    ),
)
