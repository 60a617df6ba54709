"""Facts of Step Functions: tasks and their errors, task tokens, expressions."""

from __future__ import annotations

import json
import re
from operator import attrgetter
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented, localstack
from tests.facts.workflows import ENDS, PARTS, WAIT, Workflows, unique
from tests.waiting import wait_until

FACTS: Facts[Workflows] = Facts()
CATCH = [{"ErrorEquals": ["States.ALL"], "Output": "{% $states.errorOutput %}", "Next": "Caught"}]
CAUGHT = {"Caught": {"Type": "Succeed"}}
# A task that takes longer than its timeout: nothing answers.
SLOW = {
    "Type": "Task",
    "Resource": "arn:aws:states:::states:startExecution.sync:2",
    "Arguments": {"StateMachineArn": "{% $states.input.child %}"},
    "TimeoutSeconds": 1,
    "End": True,
}


def _last(workflows: Workflows, execution: str, kind: str) -> dict[str, Any]:
    """The details of the last event of this type, or {}."""
    details = kind[0].lower() + kind[1:] + "EventDetails"
    found = (event.get(details, {}) for event in reversed(workflows.history(execution)) if event["type"] == kind)
    return next(found, {})


@FACTS.row(
    "A task's timeout is caught with an empty cause.",
    source=localstack(f"{PARTS}/error_handling/test_task_service_lambda.py", "test_invoke_timeout"),
    expected={"Error": "States.Timeout", "Cause": ""},
)
def task_timeout_is_caught_without_cause(workflows: Workflows) -> Any:
    return workflows.output({"Run": SLOW | {"Catch": CATCH}, **CAUGHT}, {"child": workflows.create(WAIT)})


@FACTS.row(
    "A task's timeout that no Catch handles ends the execution with an error and without a cause.",
    source=localstack(f"{PARTS}/timeouts/test_timeouts.py", "test_fixed_timeout_service_lambda"),
    expected=({"error"}, {"error": "States.Timeout"}),
)
def task_timeout_fails_without_cause(workflows: Workflows) -> Any:
    execution = workflows.start(workflows.create({"Run": SLOW}), {"child": workflows.create(WAIT)})
    workflows.end_of(execution)
    timed_out = _last(workflows, execution, "TaskTimedOut")
    return timed_out.keys() & {"error", "cause"}, _last(workflows, execution, "ExecutionFailed")


@FACTS.row(
    "The answer of an optimized startExecution contains the metadata of its HTTP call.",
    source=localstack(f"{PARTS}/services/test_sfn_task_service.py", "test_start_execution"),
    expected={"ExecutionArn", "SdkHttpMetadata", "SdkResponseMetadata", "StartDate"},
)
def optimized_start_has_metadata(workflows: Workflows) -> set[str]:
    task = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "End": True}
    return {*workflows.output({"Start": task | {"Arguments": {"StateMachineArn": workflows.create(WAIT)}}})}


def _failure(workflows: Workflows, resource: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """The error of a task, and the error code in its cause."""
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, "End": True}
    ended = workflows.end({"Call": task})
    return ended["error"], ended["cause"].partition("Error Code: ")[2].partition(";")[0]


@FACTS.row(
    "A refusal of SQS fails an optimized task by the base class's name; its cause contains the error code.",
    source=localstack(f"{PARTS}/error_handling/test_task_service_sqs.py", "test_send_message_empty_body"),
    expected=("SQS.AmazonSQSException", "MissingParameter"),
)
def optimized_sqs_error(workflows: Workflows) -> tuple[str, str]:
    url, _ = workflows.queue()
    return _failure(workflows, "sqs:sendMessage", {"QueueUrl": url, "MessageBody": None})


def _closings(workflows: Workflows, machine: str, *statuses: str) -> str:
    """The URL of a queue that receives the status events of a state machine's executions with these statuses."""
    events, (url, arn), rule = workflows.client("events"), workflows.queue(), unique("ends")
    detail = {"stateMachineArn": [machine], "status": [*statuses]}
    pattern = {"source": ["aws.states"], "detail-type": ["Step Functions Execution Status Change"], "detail": detail}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": arn}])
    return url


@FACTS.row(
    "Each end of an execution has a status event, and one rule may receive them all.",
    source=documented("Step Functions Developer Guide, Automating Step Functions event delivery with EventBridge"),
    expected=["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"],
)
def status_events_of_all_ends(workflows: Workflows) -> list[str]:
    machine = workflows.create(ENDS, TimeoutSeconds=1)
    url = _closings(workflows, machine, "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
    seen = []
    for end in ("SUCCEEDED", "FAILED", "", "ABORTED"):
        execution = workflows.start(machine, {"end": end})
        if end == "ABORTED":
            workflows.stepfunctions.stop_execution(executionArn=execution)
        detail = workflows.receive(url)["detail"]
        assert detail["executionArn"] == execution
        seen.append(detail["status"])
    return seen


@FACTS.row(
    "The status event of an execution's end has its redrive count.",
    source=documented("Step Functions Developer Guide, Automating Step Functions event delivery with EventBridge"),
    expected=[0, 1],
)
def status_event_of_a_redrive(workflows: Workflows) -> list[int]:
    machine = workflows.create({"Bad": {"Type": "Fail"}})
    url = _closings(workflows, machine, "FAILED")
    execution = workflows.start(machine)
    first = workflows.receive(url)
    workflows.stepfunctions.redrive_execution(executionArn=execution)
    return [event["detail"]["redriveCount"] for event in (first, workflows.receive(url))]


def _evaluation(workflows: Workflows, fields: dict[str, Any]) -> tuple[str, str]:
    ended = workflows.end({"Evaluate": {"Type": "Pass", "End": True, **fields}}, {"a": 1})
    return ended["error"], ended["cause"]


@FACTS.row(
    "An expression without a value fails its state; the cause names the state, the field and the expression.",
    source=localstack(f"{PARTS}/assign/test_assign_reference_variables.py", "test_undefined_reference"),
    expected=(
        "States.QueryEvaluationError",
        "An error occurred while executing the state 'Evaluate' (entered at the event id #2). The JSONata expression "
        "'$doesNotExist' specified for the field 'Output/result' returned nothing (undefined).",
    ),
)
def cause_of_an_undefined_value(workflows: Workflows) -> tuple[str, str]:
    return _evaluation(workflows, {"Output": {"result": "{% $doesNotExist %}"}})


@FACTS.row(
    "A missing state machine fails an optimized startExecution by the exception's name.",
    source=localstack(f"{PARTS}/services/test_sfn_task_service.py", "test_start_execution_no_such_arn"),
    expected=("StepFunctions.StateMachineDoesNotExistException", "StateMachineDoesNotExist"),
)
def optimized_start_error(workflows: Workflows) -> tuple[str, str]:
    arguments = {"StateMachineArn": workflows.create(WAIT) + "-missing"}
    return _failure(workflows, "states:startExecution", arguments)


@FACTS.row(
    "A missing table fails an optimized DynamoDB task as DynamoDB.ResourceNotFoundException.",
    source=localstack(f"{PARTS}/error_handling/test_task_service_dynamodb.py", "test_put_item_no_such_table"),
    expected="DynamoDB.ResourceNotFoundException",
)
def optimized_dynamodb_error(workflows: Workflows) -> str:
    arguments = {"TableName": "no-such-table", "Item": {"name": {"S": "a"}}}
    return _failure(workflows, "dynamodb:putItem", arguments)[0]


@FACTS.row(
    "The context object of a first run has the redrive count 0, and times as ISO 8601 in UTC.",
    source=localstack(f"{PARTS}/context_object/test_context_object.py", "test_input_path"),
    expected=[0, True, True],
)
def context_object(workflows: Workflows) -> Any:
    times = ("$states.context.Execution.StartTime", "$states.context.State.EnteredTime")
    seen = ["{% $states.context.Execution.RedriveCount %}", *(f"{{% {time} %}}" for time in times)]
    count, *moments = workflows.output({"Read": {"Type": "Pass", "Output": seen, "End": True}})
    return [count, *(bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", each)) for each in moments)]


@FACTS.row(
    "An undefined value also fails a state in its Assign and in its Arguments.",
    source=localstack(f"{PARTS}/assign/test_assign_reference_variables.py", "test_undefined_reference"),
    expected=[("States.QueryEvaluationError", field) for field in ("Assign/result", "Arguments/QueueNamePrefix")],
)
def undefined_in_assign_and_arguments(workflows: Workflows) -> list[tuple[str, str]]:
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:listQueues"}
    fields: list[dict[str, Any]] = [
        {"Assign": {"result": "{% $none %}"}},
        task | {"Arguments": {"QueueNamePrefix": "{% $none %}"}},
    ]
    failures = [_evaluation(workflows, each) for each in fields]
    return [(error, cause.partition("the field '")[2].partition("'")[0]) for error, cause in failures]


@FACTS.row(
    "The cause of an expression that fails quotes the expression before the error of JSONata.",
    source=localstack(f"{PARTS}/intrinsic_functions/test_math_operations_jsonata.py", "test_math_random_seeded"),
    expected=(
        "States.QueryEvaluationError",
        "An error occurred while executing the state 'Evaluate' (entered at the event id #2). The JSONata expression "
        "'$randomSeeded($states.input.a)' specified for the field 'Output/result' threw an error during evaluation. "
        "T1006: Attempted to invoke a non-function",
    ),
)
def cause_of_a_failed_expression(workflows: Workflows) -> tuple[str, str]:
    return _evaluation(workflows, {"Output": {"result": "{% $randomSeeded($states.input.a) %}"}})


@FACTS.row(
    "Every expression of an Assign sees the variables as they were on entry to the state.",
    source=documented("Step Functions Developer Guide, Passing data between states with variables"),
    expected={"a": 2, "b": 1},
)
def assign_sees_earlier_values(workflows: Workflows) -> Any:
    first = {"Type": "Pass", "Assign": {"a": 1, "b": 0}, "Next": "Second"}
    second = {"Type": "Pass", "Assign": {"a": 2, "b": "{% $a %}"}, "Next": "Last"}
    last = {"Type": "Pass", "Output": {"a": "{% $a %}", "b": "{% $b %}"}, "End": True}
    return workflows.output({"First": first, "Second": second, "Last": last})


@FACTS.row(
    "The first failure of an iteration ends a Map with its error, and stops the waits and children of the others.",
    source=documented("Step Functions Developer Guide, Map workflow state"),
    expected=("FAILED", "States.TaskFailed", "ABORTED"),
)
def failed_iteration(workflows: Workflows) -> tuple[str, str, str]:
    child, names = workflows.create(WAIT), [unique("child") for _ in range(2)]
    choices = [{"Condition": "{% $states.input = 'wait' %}", "Next": "Wait"}]
    choice = {"Type": "Choice", "Choices": choices, "Default": "Run"}
    arguments = {"StateMachineArn": child, "Name": "{% $states.input %}"}
    run = {"Type": "Task", "Resource": SLOW["Resource"], "Arguments": arguments, "End": True}
    states = {"Which": choice, **WAIT, "Run": run}
    each = {"Type": "Map", "Items": ["wait", *names], "ItemProcessor": {"StartAt": "Which", "States": states}}
    execution = workflows.start(workflows.create({"Each": each | {"End": True}}))
    arns = [f"{child.replace(':stateMachine:', ':execution:')}:{name}" for name in names]
    for arn in arns:
        wait_until(lambda arn=arn: code_of(lambda: workflows.describe(arn)) == "accepted", "the children")  # type: ignore[misc]
    workflows.stepfunctions.stop_execution(executionArn=arns[0])
    ended = workflows.end_of(execution)
    return ended["status"], ended["error"], workflows.end_of(arns[1])["status"]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_stepfunctions(fact: Fact[Workflows], aws: EmbeddedAws) -> None:
    fact.check(embedded=Workflows(aws))
