"""Facts of Step Functions that need executions: names of errors, children, status events, redrives and callers."""

from __future__ import annotations

import json
from typing import Any

from dev.smoke import own_resources as own
from dev.smoke.check_cleanup import CLOSED
from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import NotShown
from dev.smoke.facts import Fact, refusal_of
from dev.smoke.state_facts import NUMBERS

BIG = 200_000  # characters; twice as many exceed the 256 KiB of a state's input or result
_TOKEN_LENGTH = 1024  # up to which the size of an item with tokens was computed


def _deployed(context: CheckContext, name: str) -> dict[str, Any]:
    state: dict[str, Any] = context.stack.machine["definition"]["States"][name]
    return state


def _answers(context: CheckContext, arn: str) -> dict[str, Any]:
    """The output of a chain. Raises NotShown if it did not succeed."""
    execution = own.ended(context, arn)
    if execution["status"] != "SUCCEEDED":
        raise NotShown(f"the check's execution ended as {execution['status']}: {execution.get('cause', '')[:500]}")
    output: dict[str, Any] = json.loads(execution["output"])
    return output


# ---------------------------------------------------------------------------------------- names of errors ("errors")


def _errors(context: CheckContext) -> dict[str, Any]:
    """What the deployed states answer without a slot, with an invalid token and with an invalid receipt handle."""
    states = {name: _deployed(context, name) for name in ("ConfirmSlot", "AskCaller", "WakeWaiting", "AnswerSuccess")}
    variables = {"token": {"task_token": "smoke"}, "first": {"receipt_handle": {"S": "smoke"}}, "answer": "{}"}
    machine = own.machine(context, "errors", own.chain(states, variables))
    process = f"{context.run}-{context.check}"  # no such process exists
    return _answers(context, own.start(context, machine, process, {"process": process, "request_id": "1"}))


def _error(state: str) -> Any:
    return lambda context: context.once(_errors)[state]


ERROR_FACTS = (
    Fact(
        "condition-refused",
        "Which error does dynamodb:updateItem return when its condition is refused?",
        "DynamoDB.ConditionalCheckFailedException",
        "S1: ConfirmSlot and ReleaseSlot catch it by this name. Otherwise change the name in every Retry and Catch of "
        "the workflow",
        _error("ConfirmSlot"),
        lambda answer: answer.get("Error") == "DynamoDB.ConditionalCheckFailedException",
    ),
    Fact(
        "heartbeat-of-invalid-token",
        "Which error does aws-sdk:sfn:sendTaskHeartbeat return for an invalid token?",
        "it contains InvalidToken",
        "AskCaller decides by it that the caller is GONE. Otherwise change $contains in AskCaller",
        _error("AskCaller"),
        lambda answer: "InvalidToken" in answer.get("Error", ""),
    ),
    Fact(
        "answer-to-invalid-token",
        "Which error does aws-sdk:sfn:sendTaskSuccess return for an invalid token?",
        "Sfn.InvalidTokenException",
        "AnswerSuccess and AnswerFailure do not retry it. Otherwise change the name in their Retry and Catch",
        _error("AnswerSuccess"),
        lambda answer: answer.get("Error") == "Sfn.InvalidTokenException",
    ),
    Fact(
        "wake-by-invalid-handle",
        "Which error does aws-sdk:sqs:changeMessageVisibility return for an invalid receipt handle?",
        "its name or cause contains ReceiptHandle",
        "WakeWaiting clears such a registration. Otherwise change $contains in WakeWaiting",
        _error("WakeWaiting"),
        lambda answer: "ReceiptHandle" in json.dumps(answer),
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


def _child_statements(context: CheckContext) -> Any:
    """The permissions of a workflow's role for its state machines, for those of the check alone."""
    mine = own.name_of(context, "*")
    rule = "StepFunctionsGetEventsForStepFunctionsExecutionRule"
    return lambda arn: [
        {"Effect": "Allow", "Action": "states:StartExecution", "Resource": arn("states", f"stateMachine:{mine}")},
        {
            "Effect": "Allow",
            "Action": ["states:DescribeExecution", "states:StopExecution"],
            "Resource": arn("states", f"execution:{mine}"),
        },
        {
            "Effect": "Allow",
            "Action": ["events:PutTargets", "events:PutRule", "events:DescribeRule"],
            "Resource": arn("events", f"rule/{rule}"),
        },
    ]


def _child_role(context: CheckContext) -> str:
    return own.role(context, "child-role", _child_statements(context))


def _child(context: CheckContext) -> str:
    return own.machine(context, "child", _CHILD)


def _child_variables(context: CheckContext) -> dict[str, Any]:
    return {"target": context.once(_child), "timeout_minutes": 5, "failure": {"error": "Smoke"}}


def _children(context: CheckContext) -> dict[str, Any]:
    """The answers of the workflow's states for children, run with a child of the check, and the child itself."""
    states = {
        "ReadMissing": _deployed(context, "ReadChild"),
        "Run": _deployed(context, "RunStateMachine"),
        "RunAgain": _deployed(context, "RunStateMachine"),
        "StopClosed": _deployed(context, "StopChild"),
    }
    machine = own.machine(context, "parent", own.chain(states, _child_variables(context)), context.once(_child_role))
    answers = _answers(context, own.start(context, machine, "numbers", {"input": NUMBERS}))
    child = f"{context.once(_child).replace(':stateMachine:', ':execution:')}:numbers"
    return answers | {"child_input": context.execution(child).get("input", "{}")}


def _large_child(context: CheckContext) -> dict[str, str]:
    """Which catcher matches, for a child whose input and output exceed 256 KiB together, and for the read of it."""
    found = {}
    for key, name in (("run", "RunStateMachine"), ("read", "ReadChild")):
        for names in (["States.DataLimitExceeded"], ["States.ALL"]):
            task = {
                each: _deployed(context, name)[each] for each in ("Type", "Resource", "Arguments", "TimeoutSeconds")
            }
            catch = [{"ErrorEquals": names, "Output": {"error": "{% $states.errorOutput.Error %}"}, "Next": "Caught"}]
            definition = {
                "QueryLanguage": "JSONata",
                "StartAt": "Begin",
                "States": {
                    "Begin": {"Type": "Pass", "Assign": _child_variables(context), "Next": "Task"},
                    "Task": task | {"Catch": catch, "Output": {}, "Next": "Done"},
                    "Caught": {"Type": "Succeed"},
                    "Done": {"Type": "Succeed", "Output": {"error": "none"}},
                },
            }
            is_all = names == ["States.ALL"]
            machine = own.machine(
                context, f"{key}-{'all' if is_all else 'name'}", definition, context.once(_child_role)
            )
            # The read finds the child of the run before it, which has the execution's name.
            arn = own.start(context, machine, f"big-{is_all}", {"input": {"do": "big", "text": "x" * BIG}})
            execution = own.ended(context, arn)
            error = json.loads(execution["output"])["error"] if execution["status"] == "SUCCEEDED" else ""
            found[f"{key}, {names[0]}"] = f"caught {error}" if error else f"not caught: {execution.get('error')}"
    return found


def _order(context: CheckContext) -> list[str]:
    """The children that succeeded, as they are listed: `slow` started first and ended last."""
    child = context.once(_child)
    for name, given in (("slow", {"do": "wait"}), ("quick", {})):
        own.start(context, child, name, given)
    for name in ("slow", "quick"):
        own.ended(context, f"{child.replace(':stateMachine:', ':execution:')}:{name}")

    def listed() -> list[str]:
        answer = context.stack.client("stepfunctions").list_executions(stateMachineArn=child, statusFilter="SUCCEEDED")
        names = [each["name"] for each in answer["executions"] if each["name"] in ("slow", "quick")]
        return names if len(names) == 2 else []

    return context.wait(listed, "both executions in the list", context.timings.start)


def _limit(key: str) -> Any:
    return lambda context: {
        name.partition(", ")[2]: text for name, text in context.once(_large_child).items() if name.startswith(key)
    }


def _caught_by(name: str) -> Any:
    return lambda answer: answer[name] == "caught States.DataLimitExceeded"


_BY_NAME = (
    "S7: a child that succeeded with a large output is settled by its own status, and its work is not repeated. "
    "Otherwise limit the child's input and output together, since its success cannot be read"
)
_BY_ALL = "nothing, while a catcher names the error before States.ALL; it decides whether that catcher is needed"

CHILD_FACTS = (
    Fact(
        "child-not-found",
        "Which error does aws-sdk:sfn:describeExecution return when no such execution exists?",
        "Sfn.ExecutionDoesNotExistException",
        "ReadChild concludes from it that no child exists. Otherwise change the name in ReadChild's Retry and Catch",
        lambda context: context.once(_children)["ReadMissing"],
        lambda answer: answer.get("Error") == "Sfn.ExecutionDoesNotExistException",
    ),
    Fact(
        "name-taken",
        "Which error does states:startExecution.sync return when a closed execution has the name?",
        "StepFunctions.ExecutionAlreadyExistsException, and it is not retried by RunStateMachine",
        "ReadChild then reads the child of that name. Otherwise list the name in the runbook; no state matches it",
        lambda context: context.once(_children)["RunAgain"],
        lambda answer: answer.get("Error") == "StepFunctions.ExecutionAlreadyExistsException",
    ),
    Fact(
        "stop-of-closed-execution",
        "What does aws-sdk:sfn:stopExecution answer for an execution that has closed?",
        "no error that the workflow depends on: StopChild catches every error and reads the child again",
        "StopChild counts each stop. If the error is States.Runtime, which no Catch matches, read the status before "
        "the stop",
        lambda context: context.once(_children)["StopClosed"],
        lambda answer: answer.get("Error") != "States.Runtime",
    ),
    Fact(
        "numbers-of-a-child",
        "What does a child receive for numbers of 15 and 16 digits?",
        "both are unchanged; a number of 19 digits exceeds a double and may be rounded",
        "a child works on the numbers that were sent. Otherwise refuse such numbers in `input`, as text is exact",
        lambda context: json.loads(context.once(_children)["child_input"], parse_int=str, parse_float=str),
        lambda digits: all(digits.get(name) == str(NUMBERS[name]) for name in ("digits_15", "digits_16")),
    ),
    Fact(
        "data-limit-of-a-child",
        "Is States.DataLimitExceeded of states:startExecution.sync caught by its name?",
        "yes",
        _BY_NAME,
        _limit("run"),
        _caught_by("States.DataLimitExceeded"),
    ),
    Fact(
        "data-limit-of-a-read",
        "Is States.DataLimitExceeded of aws-sdk:sfn:describeExecution caught by its name?",
        "yes",
        _BY_NAME,
        _limit("read"),
        _caught_by("States.DataLimitExceeded"),
    ),
    Fact(
        "data-limit-by-states-all",
        "Does States.ALL catch both?",
        "yes, as AWS's recorded answers of Lambda tasks show",
        _BY_ALL,
        lambda context: context.once(_large_child),
        lambda answer: all(text == "caught States.DataLimitExceeded" for name, text in answer.items() if "ALL" in name),
    ),
    Fact(
        "order-of-closed-executions",
        "In which order does ListExecutions return closed executions of one status?",
        "the one that ended last comes first, whenever it started",
        "S4: the janitor ends its reading of the list at the first execution that ended before its last run. "
        "Otherwise it reads whole lists (slots/executions.py, _closed)",
        _order,
        lambda names: names == ["slow", "quick"],
    ),
)


# --------------------------------------------------------------------------- status events and redrives ("endings")

_ENDINGS = {
    "QueryLanguage": "JSONata",
    "StartAt": "Choose",
    "TimeoutSeconds": 5,
    "States": {
        "Choose": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $states.input.do = 'fail' %}", "Next": "Fail"}],
            "Default": "Wait",
        },
        "Fail": {"Type": "Fail", "Error": "Smoke", "Cause": "the smoke test"},
        "Wait": {"Type": "Wait", "Seconds": 60, "End": True},
    },
}


def _events(context: CheckContext) -> dict[str, dict[str, Any]]:
    """The details of the status events of executions that failed, timed out and were aborted, by status."""
    machine = own.machine(context, "endings", _ENDINGS)
    url = own.queue(context, "events")
    _route_events(context, machine, url)
    stepfunctions = context.stack.client("stepfunctions")
    arns = [own.start(context, machine, name, {"do": name}) for name in ("fail", "time-out", "abort")]
    stepfunctions.stop_execution(executionArn=arns[2], error="Smoke", cause="the smoke test")
    for arn in arns:
        own.ended(context, arn)
    details: dict[str, dict[str, Any]] = {}

    def collected() -> bool:
        for message in (
            context.stack.client("sqs")
            .receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            .get("Messages", [])
        ):
            detail = json.loads(message["Body"])["detail"]
            details[detail["status"]] = detail
        return {"FAILED", "TIMED_OUT", "ABORTED"} <= details.keys()

    context.wait(collected, "the status events", context.timings.start)
    return details


def _route_events(context: CheckContext, machine: str, url: str) -> None:
    """Send the status events of a machine to a queue."""
    events, name, arn = context.stack.client("events"), own.name_of(context, "rule"), own.queue_arn(context, url)
    pattern = {"source": ["aws.states"], "detail": {"stateMachineArn": [machine]}}
    rule = events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"]
    context.undo.append((f"rule {name}", lambda: events.delete_rule(Name=name)))
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    context.stack.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    events.put_targets(Rule=name, Targets=[{"Id": "smoke", "Arn": arn}])
    context.undo.append((f"target of {name}", lambda: events.remove_targets(Rule=name, Ids=["smoke"])))
    context.stopped.wait(context.timings.new_role)  # a new rule takes effect as slowly as a new role


def _event(status: str) -> Any:
    return lambda context: context.once(_events)[status]


def _has(status: str) -> Any:
    return lambda detail: (
        detail["status"] == status and {"executionArn", "name", "startDate", "stopDate"} <= detail.keys()
    )


def _redriven_map(context: CheckContext) -> dict[str, Any]:
    """A Map whose second item fails before the first redrive: the output after it, and the item's states entered."""
    item = {
        "Work": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $states.input = 2 and $states.context.Execution.RedriveCount = 0 %}", "Next": "Fail"}
            ],
            "Default": "Done",
        },
        "Fail": {"Type": "Fail", "Error": "Smoke"},
        "Done": {
            "Type": "Pass",
            "Output": {"item": "{% $states.input %}", "redrives": "{% $states.context.Execution.RedriveCount %}"},
            "End": True,
        },
    }
    each = {
        "Type": "Map",
        "Items": [1, 2],
        "MaxConcurrency": 1,
        "ItemProcessor": {"StartAt": "Work", "States": item},
        "End": True,
    }
    definition = {"QueryLanguage": "JSONata", "StartAt": "Each", "States": {"Each": each}}
    arn = own.start(context, own.machine(context, "map", definition), "map")
    own.ended(context, arn)
    context.stack.client("stepfunctions").redrive_execution(executionArn=arn)

    def ended_again() -> Any:
        execution = context.execution(arn)
        return execution if execution.get("redriveCount") and execution["status"] in CLOSED else None

    execution = context.wait(ended_again, "the end of the redriven Map", context.timings.start)
    return {"status": execution["status"], "output": json.loads(execution.get("output", "null"))}


_STATUS = (
    "S4 within seconds: the status event frees the slot of an execution that ended without its own release. Otherwise "
    "the janitor frees it; change the pattern of the template's rule"
)

ENDED_FACTS = (
    *(
        Fact(
            f"event-{status.lower().replace('_', '-')}",
            f"Which fields has the status event of an execution that ended as {status}?",
            "status, executionArn, name, startDate and stopDate at least; error and cause are optional",
            _STATUS,
            _event(status),
            _has(status),
        )
        for status in ("FAILED", "TIMED_OUT", "ABORTED")
    ),
    Fact(
        "redriven-map",
        "Where does the redrive of a failed Map begin, and what is RedriveCount in its iterations?",
        "only the failed item runs again, with RedriveCount 1; the results of the others are kept",
        "a caller's Map (examples/waiting-caller) sends only the items again whose work did not succeed. Otherwise "
        "its page must warn that a redrive repeats work",
        _redriven_map,
        lambda answer: (
            answer == {"status": "SUCCEEDED", "output": [{"item": 1, "redrives": 0}, {"item": 2, "redrives": 1}]}
        ),
        not_here="the embedded AWS runs the whole Map again",
    ),
)


# ---------------------------------------------------------------------------------------------- callers ("callers")


def _asking(url: str) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {"QueueUrl": url, "MessageBody": {"task_token": "{% $states.context.Task.Token %}"}},
        "TimeoutSeconds": 300,
        "End": True,
    }


def _caller_role(context: CheckContext) -> str:
    """It may send to the check's queue, and answer the machine `caller`, not the machine `other`."""
    callers = [own.name_of(context, suffix) for suffix in ("caller", "distributed")]
    mine = own.name_of(context, "*")
    return own.role(
        context,
        "caller-role",
        lambda arn: [
            {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": arn("sqs", mine)},
            {
                "Effect": "Allow",
                "Action": ["states:SendTaskSuccess", "states:SendTaskHeartbeat"],
                "Resource": [arn("states", f"stateMachine:{name}") for name in callers],
            },
            # A Distributed Map starts its iterations as executions of its own state machine.
            {"Effect": "Allow", "Action": "states:StartExecution", "Resource": arn("states", f"stateMachine:{mine}")},
            {
                "Effect": "Allow",
                "Action": ["states:DescribeExecution", "states:StopExecution"],
                "Resource": arn("states", f"execution:{mine}"),
            },
        ],
    )


def _caller_queue(context: CheckContext) -> str:
    return own.queue(context, "asked")


def _token(context: CheckContext, suffix: str, definition: dict[str, Any]) -> tuple[str, str]:
    """Start a machine that asks for an answer; its execution's ARN and the token that it sent."""
    machine = own.machine(context, suffix, definition, context.once(_caller_role))
    arn = own.start(context, machine, suffix)
    url = context.once(_caller_queue)
    message = own.receive(context, url, f"the token of {suffix}")
    context.stack.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return arn, json.loads(message["Body"])["task_token"]


def _machine_of(state: dict[str, Any]) -> dict[str, Any]:
    return {"QueryLanguage": "JSONata", "StartAt": "Ask", "States": {"Ask": state}}


def _caller(context: CheckContext) -> tuple[str, str]:
    return _token(context, "caller", _machine_of(_asking(context.once(_caller_queue))))


def _answered(context: CheckContext, suffix: str, token: str) -> dict[str, Any]:
    """What the workflow's own states for a caller answer, under the role of the check."""
    states = {name: _deployed(context, name) for name in ("AskCaller", "AnswerSuccess")}
    variables = {"token": {"task_token": token}, "answer": "{}"}
    machine = own.machine(context, f"answers-{suffix}", own.chain(states, variables), context.once(_caller_role))
    return _answers(context, own.start(context, machine, "answers"))


def _heartbeat(context: CheckContext) -> dict[str, str]:
    _, token = context.once(_caller)
    return refusal_of(lambda: context.stack.client("stepfunctions").send_task_heartbeat(taskToken=token))


def _permitted(context: CheckContext) -> dict[str, Any]:
    arn, token = context.once(_caller)
    answers = _answered(context, "caller", token)
    return answers | {
        "caller": own.ended(context, arn)["status"] if "Error" not in answers["AnswerSuccess"] else "waits"
    }


def _not_permitted(context: CheckContext) -> dict[str, Any]:
    _, token = _token(context, "other", _machine_of(_asking(context.once(_caller_queue))))
    return _answered(context, "other", token)


def _distributed(context: CheckContext) -> dict[str, Any]:
    """A caller inside a Distributed Map: its token is answered under the permission for the Map's own state machine."""
    each = {
        "Type": "Map",
        "Label": "Each",
        "Items": [1],
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "Ask",
            "States": {"Ask": _asking(context.once(_caller_queue))},
        },
        "End": True,
    }
    arn, token = _token(
        context, "distributed", {"QueryLanguage": "JSONata", "StartAt": "Each", "States": {"Each": each}}
    )
    answers = _answered(context, "distributed", token)
    if "Error" not in answers["AnswerSuccess"]:
        return answers | {"caller": own.ended(context, arn)["status"]}
    return answers | {"caller": "waits"}


_ARNS = "CallerStateMachineArns restricts the roles that answer callers. Otherwise the parameter must "

CALLER_FACTS = (
    Fact(
        "token-length",
        "How long is a task token?",
        f"at most {_TOKEN_LENGTH:,} characters without white space",
        "request.schema.json permits 2,048 characters, and the size of an item with many callers is computed from "
        "1,024. Otherwise change both",
        lambda context: {"characters": len(context.once(_caller)[1]), "has_space": " " in context.once(_caller)[1]},
        lambda answer: answer["characters"] <= _TOKEN_LENGTH and not answer["has_space"],
    ),
    Fact(
        "heartbeat-without-heartbeat-seconds",
        "What does SendTaskHeartbeat answer for a task without HeartbeatSeconds?",
        "it is accepted",
        "AskCaller finds a caller that has gone by it. If the error is TaskTimedOut, TaskDoesNotExist or "
        "InvalidToken, no caller's work is done: AskCaller needs another way",
        _heartbeat,
        lambda refusal: not refusal,
    ),
    Fact(
        "permitted-caller",
        "May a role answer a task whose state machine's ARN its policy names?",
        "yes: heartbeat and answer are accepted, and the caller succeeds",
        _ARNS + "name what AWS evaluates",
        _permitted,
        lambda answer: answer["caller"] == "SUCCEEDED",
    ),
    Fact(
        "other-caller",
        "Which error does the task return when the policy does not name the caller's state machine?",
        "it contains AccessDenied",
        _ARNS + "be removed, since it restricts nothing",
        _not_permitted,
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
