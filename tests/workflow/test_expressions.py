"""Each expression of the definition is evaluated, and has its expected value in this project's interpreter."""

from __future__ import annotations

import pytest

from tests.workflow.case import Case
from tests.workflow.expression_cases import CASES, fields, template
from tests.workflow.interpreter import evaluate


def test_every_expression_is_compared() -> None:
    compared = [template(case.path) for case in CASES]
    assert [path for path, field in fields() if field not in compared] == []


@pytest.mark.parametrize("value", [True, False])
def test_every_condition_is_compared_with_this_value(value: bool) -> None:
    seen = {case.path for case in CASES if case.expected is value}
    assert {path for path, _ in fields() if path.endswith(".Condition")} - seen == set()


@pytest.mark.parametrize("case", CASES, ids=[f"{number} {case.path}" for number, case in enumerate(CASES)])
def test_an_expression_has_the_value_of_its_case(case: Case) -> None:
    assert evaluate(template(case.path), case.states, case.variables) == case.expected
