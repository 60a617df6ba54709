"""Facts of Step Functions that need executions: names of errors, children and callers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from dev.smoke import own_resources as own
from dev.smoke.check_context import CheckContext
from dev.smoke.facts import HAND_OFF, Fact, NotShown

NUMBERS = {"digits_15": 123456789012345, "digits_16": 1234567890123456}
BIG = 200_000  # characters; twice as many exceed the 256 KiB of a state's input or result
TOKEN_LENGTH = 1024  # up to which the size of an item with tokens was computed


def _run_chain(
    context: CheckContext,
    suffix: str,
    states: Mapping[str, str | dict[str, Any]],
    variables: dict[str, Any],
    name: str,
    given: Any = None,
    *,
    role: str = "",
    caught: str = "States.ALL",
) -> dict[str, Any]:
    """What states answer, one after the other. Raises NotShown if the chain did not succeed.

    Args:
        states: name in the answer -> the name of a deployed state, or a state.
    """
    deployed = context.stack.machine["definition"]["States"]
    chain = {key: deployed[state] if isinstance(state, str) else state for key, state in states.items()}
    machine = own.machine(context, suffix, own.chain(chain, variables, caught), role)
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
            "Choices": [{"Condition": "{% $states.input.do = 'big' %}", "Next": "Big"}],
            "Default": "Done",
        },
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
)


# -------------------------------------------------------------------------------- status events of executions ("ends")

_END = {
    "QueryLanguage": "JSONata",
    "StartAt": "Choose",
    "TimeoutSeconds": 5,
    "States": {
        "Choose": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $states.input = 'SUCCEEDED' %}", "Next": "Done"},
                {"Condition": "{% $states.input = 'FAILED' %}", "Next": "Failed"},
            ],
            "Default": "Wait",
        },
        "Done": {"Type": "Succeed"},
        "Failed": {"Type": "Fail", "Error": "Smoke"},
        "Wait": {"Type": "Wait", "Seconds": 3600, "End": True},
    },
}
ENDS = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")


def _status_events(context: CheckContext) -> dict[str, float]:
    """Seconds from each end of an execution to the receipt of its event, by the pattern of the deployed rule."""
    stepfunctions, events = context.stack.client("stepfunctions"), context.stack.client("events")
    machine = own.machine(context, "ends", _END)
    deployed = events.describe_rule(Name=context.stack.resource("WorkflowClosedRule").rpartition("|")[2])
    pattern = json.loads(deployed["EventPattern"])
    pattern["detail"]["stateMachineArn"] = [machine]
    url = own.event_queue(context, "ends", pattern)
    arns = {own.start(context, machine, end.lower(), end): end for end in ENDS}
    stepfunctions.stop_execution(executionArn=next(arn for arn, end in arns.items() if end == "ABORTED"))
    late: dict[str, float] = {}
    while len(late) < len(ENDS):
        message = own.receive(context, url, f"the events of {len(ENDS) - len(late)} ends")
        received, detail = time.time(), json.loads(message["Body"])["detail"]
        context.stack.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        late[detail["status"]] = round(received - detail["stopDate"] / 1000, 1)
    return late


END_FACTS = (
    Fact(
        "event-of-each-end",
        "How soon does the pattern of WorkflowClosedRule match each of the four ends of an execution?",
        f"within {HAND_OFF:.0f} s: SUCCEEDED, FAILED, TIMED_OUT, ABORTED",
        "S4: the function of endings settles and publishes an end by its event. Otherwise the janitor does, within two "
        "minutes: correct the pattern",
        _status_events,
        lambda late: sorted(late) == sorted(ENDS) and max(late.values()) <= HAND_OFF,
    ),
)


# ---------------------------------------------------------------------------------------------- callers ("callers")


_TOKEN = {"task_token": "{% $states.context.Task.Token %}"}
_ANSWER = {
    "Type": "Task",
    "Resource": "arn:aws:states:::aws-sdk:sfn:sendTaskSuccess",
    "Arguments": {"TaskToken": "{% $task_token %}", "Output": "{}"},
    "TimeoutSeconds": 10,
}


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


def _asking(context: CheckContext) -> dict[str, Any]:
    return own.asking(context.once(_caller_queue), _TOKEN)


def _token(context: CheckContext, suffix: str, definition: dict[str, Any]) -> tuple[str, str]:
    """Start a machine that asks for an answer; its execution's ARN and the token that it sent."""
    machine = own.machine(context, suffix, {"QueryLanguage": "JSONata"} | definition, context.once(_caller_role))
    arn = own.start(context, machine, suffix)
    url = context.once(_caller_queue)
    message = own.receive(context, url, f"the token of {suffix}")
    context.stack.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return arn, json.loads(message["Body"])["task_token"]


def _caller(context: CheckContext) -> tuple[str, str]:
    return _token(context, "caller", _asking(context))


def _answered(context: CheckContext, suffix: str, caller: tuple[str, str]) -> dict[str, Any]:
    """What AskCaller and an answer return under the role of the check, and how the caller ended."""
    arn, token = caller
    states: dict[str, str | dict[str, Any]] = {"AskCaller": "AskCaller", "Answer": _ANSWER}
    role = context.once(_caller_role)
    answers = _run_chain(context, f"answers-{suffix}", states, {"task_token": token}, "answers", role=role)
    waits = "Error" in answers["Answer"]
    return answers | {"caller": "waits" if waits else own.ended(context, arn)["status"]}


def _distributed(context: CheckContext) -> dict[str, Any]:
    """A caller inside a Distributed Map: its token is answered under the permission for the Map's own state machine."""
    distributed = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    processor = distributed | _asking(context)
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
        lambda context: _answered(context, "other", _token(context, "other", _asking(context))),
        lambda answer: "AccessDenied" in json.dumps(answer["Answer"]),
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
