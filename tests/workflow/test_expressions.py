"""Each expression of the definition evaluates to what it should, in this project's interpreter."""

from __future__ import annotations

import pytest

from tests.workflow.expression_cases import CASES, Case, fields, template
from tests.workflow.interpreter import evaluate


def test_every_expression_has_a_case() -> None:
    tried = [template(case.path) for case in CASES]
    assert [path for path, value in fields() if value not in tried] == []


@pytest.mark.parametrize("case", CASES, ids=[f"{number} {case.path}" for number, case in enumerate(CASES)])
def test_an_expression_evaluates_to_what_its_case_says(case: Case) -> None:
    assert evaluate(template(case.path), case.states, case.variables) == case.expected
