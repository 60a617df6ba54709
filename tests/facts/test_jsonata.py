"""The embedded AWS must agree with the interpreter of the simulated AWS, and with JSONata 2.0.6 itself, on each
expression of the workflow and on each value of value_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.facts.account import Account
from tests.facts.machines import Machines
from tests.workflow import reference
from tests.workflow.expression_cases import CASES, template
from tests.workflow.interpreter import deployed
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


def _answers(machines: Machines, asked: Sequence[Question]) -> list[Any]:
    """The value of each field: one state assigns the inputs of its expressions, the next one evaluates them."""
    states: dict[str, Any] = {}
    for number, (field, of_states, variables) in enumerate(asked):
        known = {"known": of_states, **variables}
        following = f"Know{number + 1}" if number + 1 < len(asked) else "Done"
        states[f"Know{number}"] = {"Type": "Pass", "Assign": known, "Next": f"Evaluate{number}"}
        value = {f"value_{number}": _in_a_pass_state(field)}
        states[f"Evaluate{number}"] = {"Type": "Pass", "Assign": value, "Next": following}
    values = [f"{{% $value_{number} %}}" for number in range(len(asked))]
    description = machines.end(states | {"Done": {"Type": "Succeed", "Output": values}})
    assert description["status"] == "SUCCEEDED", (description["error"], description["cause"])
    return list(json.loads(description["output"]))


def test_the_embedded_aws_evaluates_every_expression_of_the_workflow_as_the_interpreter(embedded: Account) -> None:
    cases = [case for case in CASES if "$random" not in str(template(case.path))]
    values = _answers(
        Machines(embedded), [Question(template(case.path), case.states, case.variables) for case in cases]
    )
    differing = [(case, value) for case, value in zip(cases, values, strict=True) if value != case.expected]
    assert differing == []


def test_the_embedded_aws_has_the_numbers_of_jsonata_2_0_6(embedded: Account) -> None:
    asked = questions()
    expected = reference.reference_answers(asked)
    assert reference.disagreements(asked, _answers(Machines(embedded), asked), expected) == []
