"""Facts of states: their expressions and values, their errors, and the executions that they start."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.facts.facts import ASSUMED, DEPLOYED, EVERYWHERE, Facts, documented, localstack
from tests.facts.machines import CAUGHT, PARTS, WAIT, Machines, execution_arn, task
from tests.facts.queues import Queue
from tests.facts.tables import PROCESS, Tables, key

FACTS = Facts("states", DEPLOYED, given=Machines)
QUERY_FAILED = "States.QueryEvaluationError"
TOO_LARGE = "States.DataLimitExceeded"

# --------------------------------------------------------------------------------------------------------------- values


def _evaluated(machines: Machines, expression: str, **variables: Any) -> Any:
    """The value of an expression, or the error with which it fails its state."""
    know = {"Type": "Pass", "Assign": {"known": True, **variables}, "Next": "Evaluate"}
    states = {"Know": know, "Evaluate": {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True}}
    ended = machines.end(states)
    return json.loads(ended["output"]) if ended["status"] == "SUCCEEDED" else ended["error"]


@FACTS.row(
    "null is a value: it can be assigned and read, and an expression may have it. Only an expression without a value "
    "fails its state.",
    source=(
        localstack(f"{PARTS}/scenarios/test_base_scenarios.py", "test_map_state_items_eval_jsonata_fail[null]"),
        localstack(f"{PARTS}/assign/test_assign_reference_variables.py", "test_undefined_reference"),
    ),
    expected=[None, None, True, "null", None, QUERY_FAILED, QUERY_FAILED, False],
    on=EVERYWHERE,
)
def null_is_a_value(machines: Machines) -> list[Any]:
    values = ("null", "$given", "$exists($given)", "$string($given)", "$parse('null')")
    nothing = ("$none", "$known.missing", "$exists($none)")
    return [_evaluated(machines, expression, given=None) for expression in (*values, *nothing)]


@FACTS.row(
    "A sum of whole numbers, a double in JSONata, is printed as an integer.",
    source=localstack(f"{PARTS}/outputdecl/test_output.py", "test_base_cases[BASE_DIRECT_EXPR]"),
    expected="7",
    on=EVERYWHERE,
)
def whole_doubles(machines: Machines) -> str:
    return json.dumps(_evaluated(machines, "$sum($values) + $n", values=[1, 2, 3], n=1.0))


@FACTS.row(
    "Every expression of an Assign sees the variables as they were on entry to the state.",
    source=documented("Step Functions Developer Guide, Passing data between states with variables"),
    expected={"a": 2, "b": 1},
    on=EVERYWHERE,
)
def assign_sees_earlier_values(machines: Machines) -> Any:
    first = {"Type": "Pass", "Assign": {"a": 1, "b": 0}, "Next": "Second"}
    second = {"Type": "Pass", "Assign": {"a": 2, "b": "{% $a %}"}, "Next": "Last"}
    last = {"Type": "Pass", "Output": {"a": "{% $a %}", "b": "{% $b %}"}, "End": True}
    return machines.output({"First": first, "Second": second, "Last": last})


@FACTS.row(
    "The context object of a first run has the redrive count 0, and times as ISO 8601 in UTC.",
    source=localstack(f"{PARTS}/context_object/test_context_object.py", "test_input_path"),
    expected=[0, True, True],
)
def context_object(machines: Machines) -> Any:
    times = ("$states.context.Execution.StartTime", "$states.context.State.EnteredTime")
    seen = ["{% $states.context.Execution.RedriveCount %}", *(f"{{% {time} %}}" for time in times)]
    count, *moments = machines.output({"Read": {"Type": "Pass", "Output": seen, "End": True}})
    return [count, *(bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", each)) for each in moments)]


# --------------------------------------------------------------------------------------------- errors of expressions

_BEGINS = "An error occurred while executing the state 'Evaluate' (entered at the event id #2). The JSONata expression "


@FACTS.row(
    "An expression without a value, or one that fails, fails its state. The cause names the state and the field, and "
    "quotes the expression before the error of JSONata.",
    source=(
        localstack(f"{PARTS}/assign/test_assign_reference_variables.py", "test_undefined_reference"),
        localstack(f"{PARTS}/intrinsic_functions/test_math_operations_jsonata.py", "test_math_random_seeded"),
    ),
    expected=[
        *(
            (QUERY_FAILED, f"{_BEGINS}'$none' specified for the field '{field}' returned nothing (undefined).")
            for field in ("Output/result", "Assign/result", "Arguments/QueueNamePrefix")
        ),
        (
            QUERY_FAILED,
            f"{_BEGINS}'$randomSeeded($states.input.a)' specified for the field 'Output/result' threw an error during "
            "evaluation. T1006: Attempted to invoke a non-function",
        ),
    ],
)
def causes_of_expressions(machines: Machines) -> list[tuple[str, str]]:
    passing = {"Type": "Pass", "End": True}
    states: list[dict[str, Any]] = [
        passing | {"Output": {"result": "{% $none %}"}},
        passing | {"Assign": {"result": "{% $none %}"}},
        task("aws-sdk:sqs:listQueues", {"QueueNamePrefix": "{% $none %}"}),
        passing | {"Output": {"result": "{% $randomSeeded($states.input.a) %}"}},
    ]
    ended = [machines.end({"Evaluate": state}, {"a": 1}) for state in states]
    return [(each["error"], each["cause"]) for each in ended]


@FACTS.row(
    "A Catch of a task receives the error of an undefined value and of $error in the task's Assign, after the call.",
    source=ASSUMED,
    expected={"undefined": [QUERY_FAILED, True], "error": [QUERY_FAILED, True]},
    depends="S3: a run that ended as STOPPED is recorded as failed, and a slot without the token of its caller ends as "
    "CallerGone. Otherwise move the test of JobRunState from RunGlueJob's Assign to a Choice state, and read the token "
    "with a default value in ReadToken",
)
def caught_errors_of_an_assign(machines: Machines) -> dict[str, Any]:
    queue = Queue(machines.aws)
    seen = {}
    for name, expression in {"undefined": "$states.result.none", "error": "$error('ended as STOPPED')"}.items():
        arguments = {"QueueUrl": queue.url, "MessageBody": {"sent": name}}
        caught = machines.caught("sqs:sendMessage", arguments, QUERY_FAILED, Assign={"x": f"{{% {expression} %}}"})
        seen[name] = [caught["Error"], queue.take() == {"sent": name}]
    return seen


# ---------------------------------------------------------------------------------------------------- errors of tasks

# A task that takes longer than its timeout: nothing answers.
SLOW = task("states:startExecution.sync:2", {"StateMachineArn": "{% $states.input.child %}"}, TimeoutSeconds=1)


@FACTS.row(
    "A task's timeout is caught with an empty cause.",
    source=localstack(f"{PARTS}/error_handling/test_task_service_lambda.py", "test_invoke_timeout"),
    expected={"Error": "States.Timeout", "Cause": ""},
)
def task_timeout_is_caught_without_cause(machines: Machines) -> Any:
    arguments = {"StateMachineArn": machines.create(WAIT)}
    return machines.caught("states:startExecution.sync:2", arguments, TimeoutSeconds=1)


@FACTS.row(
    "A task's timeout that no Catch handles ends the execution with an error and without a cause.",
    source=localstack(f"{PARTS}/timeouts/test_timeouts.py", "test_fixed_timeout_service_lambda"),
    expected=({"error"}, {"error": "States.Timeout"}),
)
def task_timeout_fails_without_cause(machines: Machines) -> Any:
    execution = machines.start(machines.create({"Run": SLOW}), {"child": machines.create(WAIT)})
    machines.end_of(execution)

    def last(kind: str) -> dict[str, Any]:
        """The details of the last event of this type."""
        details = kind[0].lower() + kind[1:] + "EventDetails"
        found = [each for each in machines.history(execution) if each["type"] == kind]
        return dict(found[-1].get(details, {}))

    return last("TaskTimedOut").keys() & {"error", "cause"}, last("ExecutionFailed")


@FACTS.row(
    "A refusal fails an optimized task by the exception's name, of SQS by that of the base class. The cause has its "
    "code.",
    source=(
        localstack(f"{PARTS}/error_handling/test_task_service_sqs.py", "test_send_message_empty_body"),
        localstack(f"{PARTS}/services/test_sfn_task_service.py", "test_start_execution_no_such_arn"),
        localstack(f"{PARTS}/error_handling/test_task_service_dynamodb.py", "test_put_item_no_such_table")
        + "; that of a refused condition is assumed",
    ),
    expected={
        "sqs": ("SQS.AmazonSQSException", "MissingParameter"),
        "execution": ("StepFunctions.StateMachineDoesNotExistException", "StateMachineDoesNotExist"),
        "table": "DynamoDB.ResourceNotFoundException",
        "condition": "DynamoDB.ConditionalCheckFailedException",
    },
    depends="S1: ConfirmSlot, RecordOutcome and ReleaseSlot catch a refused condition by this name. Otherwise change "
    "the name in every Retry and Catch of the workflow",
)
def errors_of_optimized_tasks(machines: Machines) -> dict[str, Any]:
    aws, tables = machines.aws, Tables(machines.aws)
    update = {"TableName": tables.slots, "Key": PROCESS, "UpdateExpression": "REMOVE holders"}
    calls = {
        "sqs": ("sqs:sendMessage", {"QueueUrl": Queue(aws).url, "MessageBody": None}),
        "execution": ("states:startExecution", {"StateMachineArn": machines.create(WAIT) + "-missing"}),
        "table": ("dynamodb:putItem", {"TableName": aws.name("missing"), "Item": {"name": {"S": "a"}}}),
        "condition": ("dynamodb:updateItem", update | {"ConditionExpression": "attribute_exists(holders)"}),
    }
    errors = {name: machines.caught(resource, arguments) for name, (resource, arguments) in calls.items()}
    seen: dict[str, Any] = {name: error["Error"] for name, error in errors.items()}
    for name in ("sqs", "execution"):
        seen[name] = (seen[name], errors[name]["Cause"].partition("Error Code: ")[2].partition(";")[0])
    return seen


@FACTS.row(
    "A Catch of States.ALL receives States.DataLimitExceeded of a task whose result is above 256 KiB, and so does one "
    "of its name.",
    source=localstack(
        f"{PARTS}/error_handling/test_states_errors.py",
        "test_task_lambda_catch_state_all_data_limit_exceeded_on_large_utf8_response and "
        "test_task_lambda_data_limit_exceeded_on_large_utf8_response",
    )
    + ', for a Lambda task; the guide\'s "Handling errors in Step Functions workflows" states the opposite',
    expected=[TOO_LARGE, TOO_LARGE],
    on=EVERYWHERE,
)
def catches_of_the_data_limit(machines: Machines) -> list[str]:
    tables = Tables(machines.aws)
    tables.add("a", body="x" * 270_000)
    arguments = {"TableName": tables.requests, "Key": key("a")}
    return [machines.caught("dynamodb:getItem", arguments, each)["Error"] for each in ("States.ALL", TOO_LARGE)]


# ------------------------------------------------------------------------------------ what the workflow calls of others


@FACTS.row(
    "A workflow's sqs:sendMessage sends an object as JSON to a standard queue, after a delay, and returns its id.",
    source=documented("AWS Step Functions Developer Guide, Send messages to an Amazon SQS queue with Step Functions"),
    expected=({"process": "p"}, True),
    depends="S6: Ring starts the dispatch after a release. Otherwise only the janitor starts what waits: check the "
    "workflow's role, and the arguments of Ring",
)
def message_of_a_workflow(machines: Machines) -> Any:
    queue = Queue(machines.aws)
    arguments = {"QueueUrl": queue.url, "MessageBody": {"process": "{% $states.input.process %}"}, "DelaySeconds": 1}
    output = machines.output({"Ring": task("sqs:sendMessage", arguments)}, {"process": "p"})
    return queue.take(), bool(output["MessageId"])


CHILD = {"StateMachineArn": "{% $states.input.child %}", "Input": "{% $states.input.given %}"}
NUMBERS = {"digits_15": 123456789012345, "digits_16": 1234567890123456}


@FACTS.row(
    "states:startExecution.sync gives a child numbers of 16 digits unchanged, and fails by its own name if a closed "
    "execution has the child's name.",
    source=ASSUMED,
    expected=({name: str(number) for name, number in NUMBERS.items()}, "StepFunctions.ExecutionAlreadyExistsException"),
    depends="a child works on the numbers that were sent: otherwise refuse such numbers in `input`, as text is exact. "
    "ReadChild reads the child of a name that is taken: otherwise list the name in the runbook",
)
def start_of_a_child(machines: Machines) -> Any:
    child, name = machines.create({"Done": {"Type": "Succeed"}}), machines.aws.name("child")
    given = {"child": child, "given": NUMBERS}
    states = {"Run": task("states:startExecution.sync", CHILD | {"Name": name}, "States.ALL"), **CAUGHT}
    machine = machines.create(states)
    machines.end_of(machines.start(machine, given))
    received = json.loads(machines.describe(execution_arn(child, name))["input"], parse_int=str, parse_float=str)
    again = json.loads(machines.end_of(machines.start(machine, given))["output"])
    return {each: received[each] for each in NUMBERS}, again["Error"]


BIG = 200_000  # characters; twice as many exceed the 256 KiB of a state's input or result


@FACTS.row(
    "States.DataLimitExceeded of startExecution.sync and of the read of the child is caught by this name, if the "
    "child's input and output exceed 256 KiB together.",
    source=ASSUMED,
    expected=[TOO_LARGE, TOO_LARGE],
    depends="S7: a child that succeeded with a large output is settled by its own status, and its work is not "
    "repeated. Otherwise limit the child's input and output together, since its success cannot be read",
)
def data_limit_of_a_child(machines: Machines) -> list[str]:
    big = {"Big": {"Type": "Pass", "Output": f"{{% $pad('', {BIG}, 'x') %}}", "End": True}}
    child, name = machines.create(big), machines.aws.name("child")
    given = {"child": child, "given": {"text": "x" * BIG}}
    ran = machines.caught("states:startExecution.sync", CHILD | {"Name": name}, TOO_LARGE, given=given)
    read = machines.caught("aws-sdk:sfn:describeExecution", {"ExecutionArn": execution_arn(child, name)}, TOO_LARGE)
    return [ran["Error"], read["Error"]]
