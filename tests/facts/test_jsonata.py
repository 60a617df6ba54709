"""Facts of JSONata in Step Functions: values, numbers, and the error of a large result.

The embedded AWS must also agree with the interpreter of the simulated AWS, and with JSONata 2.0.6 itself, on each
expression of the workflow and on each value of value_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, localstack
from tests.facts.workflows import PARTS, Workflows, unique
from tests.simulation.account.tables import create_table
from tests.workflow import reference
from tests.workflow.expression_cases import CASES, template, walked
from tests.workflow.interpreter import State, StateFailed, deployed, evaluate
from tests.workflow.value_cases import Question, questions

FAILED = "States.QueryEvaluationError"
TOO_LARGE = "States.DataLimitExceeded"


class Evaluator(Protocol):
    """Evaluates an expression; FAILED if it fails, or has no value."""

    def evaluate(self, expression: str, **variables: Any) -> Any: ...


class Embedded:
    """The embedded AWS."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.workflows = Workflows(aws)

    def evaluate(self, expression: str, **variables: Any) -> Any:
        know = {"Type": "Pass", "Assign": {"known": True, **variables}, "Next": "Evaluate"}
        states = {"Know": know, "Evaluate": {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True}}
        ended = self.workflows.end(states)
        return json.loads(ended["output"]) if ended["status"] == "SUCCEEDED" else ended["error"]

    def large_result(self, caught_by: str) -> str:
        """The error of a task with a result above 256 KiB, which a Catch of `caught_by` receives."""
        dynamodb, table = self.workflows.client("dynamodb"), unique("large")
        create_table(dynamodb, table, "name")
        dynamodb.put_item(TableName=table, Item={"name": {"S": "a"}, "text": {"S": "x" * 270_000}})
        task = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "End": True}
        task |= {"Arguments": {"TableName": table, "Key": {"name": {"S": "a"}}}}
        caught = {"ErrorEquals": [caught_by], "Output": "{% $states.errorOutput.Error %}", "Next": "Caught"}
        ended = self.workflows.end({"Get": task | {"Catch": [caught]}, "Caught": {"Type": "Succeed"}})
        return str(json.loads(ended["output"])) if ended["status"] == "SUCCEEDED" else "not caught"


class Interpreter:
    """The interpreter of the simulated AWS."""

    def evaluate(self, expression: str, **variables: Any) -> Any:
        try:
            return evaluate(f"{{% {expression} %}}", {}, variables)
        except StateFailed as failed:
            return failed.error

    def large_result(self, caught_by: str) -> str:
        """As of Embedded."""
        catcher = {"ErrorEquals": [caught_by], "Next": "Caught"}
        catcher |= {"Assign": {"error": "{% $states.errorOutput.Error %}"}}
        _, variables = State({"Type": "Task", "Catch": [catcher]}).catch(StateFailed(TOO_LARGE, ""), {}, {})
        return str(variables["error"])


VALUES: Facts[Evaluator] = Facts()


@VALUES.row(
    "null is a value: it can be assigned and read, and an expression may have it.",
    source=localstack(f"{PARTS}/scenarios/test_base_scenarios.py", "test_map_state_items_eval_jsonata_fail[null]"),
    expected=[None, None, True, "null", None],
)
def null_is_a_value(evaluator: Evaluator) -> list[Any]:
    expressions = ("null", "$given", "$exists($given)", "$string($given)", "$parse('null')")
    return [evaluator.evaluate(expression, given=None) for expression in expressions]


@VALUES.row(
    "Only an expression without a value fails its state.",
    source=localstack(f"{PARTS}/assign/test_assign_reference_variables.py", "test_undefined_reference"),
    expected=[FAILED, FAILED, False],
)
def undefined_is_no_value(evaluator: Evaluator) -> list[Any]:
    return [evaluator.evaluate(each, given={}) for each in ("$none", "$given.missing", "$exists($none)")]


@VALUES.row(
    "A sum of whole numbers, a double in JSONata, is printed as an integer.",
    source=localstack(f"{PARTS}/outputdecl/test_output.py", "test_base_cases[BASE_DIRECT_EXPR]"),
    expected="7",
)
def whole_doubles(evaluator: Evaluator) -> str:
    return json.dumps(evaluator.evaluate("$sum($values) + $n", values=[1, 2, 3], n=1.0))


@pytest.mark.parametrize("fact", VALUES, ids=attrgetter("name"))
def test_values(fact: Fact[Evaluator], aws: EmbeddedAws) -> None:
    fact.check(embedded=Embedded(aws), simulated=Interpreter())


FUNCTIONS: Facts[Embedded] = Facts()


@FUNCTIONS.row(
    "$range of one number is that number; $partition of one element is an array.",
    source=localstack(f"{PARTS}/intrinsic_functions/test_array_jsonata.py", "test_array_range, test_array_partition"),
    expected=[[1, 3, 5, 7, 9], 1, [[0]]],
)
def range_of_one_number(embedded: Embedded) -> list[Any]:
    return [embedded.evaluate(each) for each in ("$range(1, 9, 2)", "$range(1, 9, 9)", "$partition([0], 1)")]


@pytest.mark.parametrize("fact", FUNCTIONS, ids=attrgetter("name"))
def test_functions(fact: Fact[Embedded], aws: EmbeddedAws) -> None:
    fact.check(embedded=Embedded(aws))


CATCHERS: Facts[Embedded | Interpreter] = Facts()


@CATCHERS.row(
    "A Catch of States.ALL receives States.DataLimitExceeded of a task whose result is above 256 KiB.",
    source=localstack(
        f"{PARTS}/error_handling/test_states_errors.py",
        "test_task_lambda_catch_state_all_data_limit_exceeded_on_large_utf8_response",
    )
    + ', for a Lambda task; the guide\'s "Handling errors in Step Functions workflows" states the opposite',
    expected=TOO_LARGE,
)
def all_catches_the_data_limit(service: Embedded | Interpreter) -> str:
    return service.large_result("States.ALL")


@CATCHERS.row(
    "A Catch of its name receives it too.",
    source=localstack(
        f"{PARTS}/error_handling/test_states_errors.py", "test_task_lambda_data_limit_exceeded_on_large_utf8_response"
    ),
    expected=TOO_LARGE,
)
def its_name_catches_the_data_limit(service: Embedded | Interpreter) -> str:
    return service.large_result(TOO_LARGE)


@pytest.mark.parametrize("fact", CATCHERS, ids=attrgetter("name"))
def test_catchers(fact: Fact[Embedded | Interpreter], aws: EmbeddedAws) -> None:
    fact.check(embedded=Embedded(aws), simulated=Interpreter())


def _in_a_pass_state(value: Any) -> Any:
    """A field for a Pass state, which has no result and no error, so a variable replaces $states."""
    if isinstance(value, dict):
        return {name: _in_a_pass_state(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_in_a_pass_state(part) for part in value]
    if isinstance(value, str) and value.startswith("{%"):
        return deployed(value).replace("$states.", "$known.")
    return value


def _answers(workflows: Workflows, asked: Sequence[Question]) -> list[Any]:
    """The value of each field: one state assigns the inputs of its expressions, the next one evaluates them."""
    states: dict[str, Any] = {}
    for number, (field, of_states, variables) in enumerate(asked):
        known = {"known": of_states, **variables}
        following = f"Know{number + 1}" if number + 1 < len(asked) else "Done"
        states[f"Know{number}"] = {"Type": "Pass", "Assign": known, "Next": f"Evaluate{number}"}
        value = {f"value_{number}": _in_a_pass_state(field)}
        states[f"Evaluate{number}"] = {"Type": "Pass", "Assign": value, "Next": following}
    values = [f"{{% $value_{number} %}}" for number in range(len(asked))]
    description = workflows.end(states | {"Done": {"Type": "Succeed", "Output": values}})
    assert description["status"] == "SUCCEEDED", (description["error"], description["cause"])
    return list(json.loads(description["output"]))


def test_the_embedded_aws_evaluates_every_expression_of_the_workflow_as_the_interpreter(aws: EmbeddedAws) -> None:
    cases = [case for case in (*CASES, *walked()) if "$random" not in str(template(case.path))]
    values = _answers(Workflows(aws), [Question(template(case.path), case.states, case.variables) for case in cases])
    differing = [(case, value) for case, value in zip(cases, values, strict=True) if value != case.expected]
    assert differing == []


def test_the_embedded_aws_has_the_numbers_of_jsonata_2_0_6(aws: EmbeddedAws) -> None:
    asked = questions()
    expected = reference.reference_answers(asked)
    assert reference.disagreements(asked, _answers(Workflows(aws), asked), expected) == []
