"""The embedded AWS evaluates each expression of the workflow like this project's interpreter."""

import json
from collections.abc import Sequence
from typing import Any

from tests.engine.conftest import MachineMaker
from tests.workflow.expression_cases import CASES, template
from tests.workflow.interpreter import deployed
from tests.workflow.reference import NO_VALUE, disagreements, reference_answers
from tests.workflow.value_cases import Question, questions


def _in_a_pass_state(value: Any) -> Any:
    """A field for a Pass state, which has no result and no error, so a variable replaces $states."""
    if isinstance(value, dict):
        return {name: _in_a_pass_state(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_in_a_pass_state(part) for part in value]
    if isinstance(value, str) and value.startswith("{%"):
        return deployed(value).replace("$states.", "$known.")
    return value


def _answers(machine: MachineMaker, asked: Sequence[Question]) -> list[Any]:
    """The value of each field: one state assigns the inputs of its expressions, the next one evaluates them."""
    states: dict[str, Any] = {}
    for number, (field, of_states, variables) in enumerate(asked):
        known = {"known": of_states, **variables}
        following = f"Know{number + 1}" if number + 1 < len(asked) else "Done"
        states[f"Know{number}"] = {"Type": "Pass", "Assign": known, "Next": f"Evaluate{number}"}
        value = {f"value_{number}": _in_a_pass_state(field)}
        states[f"Evaluate{number}"] = {"Type": "Pass", "Assign": value, "Next": following}
    values = [f"{{% $value_{number} %}}" for number in range(len(asked))]
    execution = machine.start(machine(states | {"Done": {"Type": "Succeed", "Output": values}}))
    description = machine.end_of(execution)
    assert description["status"] == "SUCCEEDED", (description["error"], description["cause"])
    return list(json.loads(description["output"]))


def test_the_embedded_aws_evaluates_every_expression_of_the_workflow_like_the_interpreter(
    machine: MachineMaker,
) -> None:
    values = _answers(machine, [Question(template(case.path), case.states, case.variables) for case in CASES])
    for case, value in zip(CASES, values, strict=True):
        assert value == case.expected, case.path


def test_the_embedded_aws_has_the_numbers_and_nulls_of_jsonata_2_0_6(machine: MachineMaker) -> None:
    asked = questions(random_numbers=20)
    expected = reference_answers(asked)
    defined = [number for number, value in enumerate(expected) if value != NO_VALUE]
    asked, expected = [asked[number] for number in defined], [expected[number] for number in defined]
    assert disagreements(asked, _answers(machine, asked), expected) == []
