"""The embedded AWS evaluates each expression of the workflow like this project's interpreter."""

import json
from typing import Any

from tests.engine.conftest import MachineMaker
from tests.workflow.case import Case
from tests.workflow.expression_cases import CASES, template
from tests.workflow.interpreter import deployed


def _in_a_pass_state(value: Any) -> Any:
    """A field for a Pass state, which has no result and no error, so a variable replaces $states."""
    if isinstance(value, dict):
        return {name: _in_a_pass_state(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_in_a_pass_state(part) for part in value]
    if isinstance(value, str) and value.startswith("{%"):
        return deployed(value).replace("$states.", "$known.")
    return value


def _pair(number: int, case: Case) -> dict[str, Any]:
    """A state that assigns the values for the case's expressions, and a state that evaluates them."""
    known = {"Type": "Pass", "Assign": {"known": case.states, **case.variables}, "Next": f"Evaluate{number}"}
    value = {f"value_{number}": _in_a_pass_state(template(case.path))}
    following = {"Next": f"Know{number + 1}"} if number + 1 < len(CASES) else {"Next": "Done"}
    return {f"Know{number}": known, f"Evaluate{number}": {"Type": "Pass", "Assign": value, **following}}


def test_the_embedded_aws_evaluates_every_expression_of_the_workflow_like_the_interpreter(
    machine: MachineMaker,
) -> None:
    states: dict[str, Any] = {}
    for number, case in enumerate(CASES):
        states |= _pair(number, case)
    values = [f"{{% $value_{number} %}}" for number in range(len(CASES))]
    execution = machine.start(machine(states | {"Done": {"Type": "Succeed", "Output": values}}))
    description = machine.end_of(execution)
    assert description["status"] == "SUCCEEDED", description
    for case, value in zip(CASES, json.loads(description["output"]), strict=True):
        assert value == case.expected, case.path
