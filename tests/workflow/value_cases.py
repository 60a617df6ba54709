"""Expressions whose value depends on how JSONata represents numbers.

None has an expected value: JSONata 2.0.6 gives it (reference.py).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.workflow.case import of_input
from tests.workflow.definition import states
from tests.workflow.interpreter import Variables


class Question(NamedTuple):
    """A field in the form of the definition's, and the inputs of its expressions."""

    field: Any
    states: dict[str, Any]
    variables: Variables


NUMBERS = [
    *("0", "-0", "1", "-1", "1.0", "1.50", "0.1", "1e2", "1E-2"),
    # 15 digits
    *("123456789012345", "-123456789012345", "0.000123456789012345", "12345678.9012345"),
    # 16 digits: rounded, ties away from zero
    *("1234567890123456", "1000000000000005", "-1000000000000005", "0.1234567890123455"),
    # near and beyond 2^53
    *("9007199254740991", "9007199254740993", "1795276800123456789", "18446744073709551615"),
    *("0.30000000000000004", "52.520006599999998", "3.141592653589793"),
    *("100000000000000000000", "999999999999999900000", "1e20", "1e21", "123e19", "1.5e300", "-2.5e21"),
    *("0.000001", "0.0000001", "1e-6", "1.5e-7", "1e-300", "123456789012345e-20"),
]
_OF_A_NUMBER = ("$string($n)", "$n & ''", "$n", "$string({'a': [$n]})")
_CHILD_INPUT = states()["RunStateMachine"]["Arguments"]["Input"]


def questions() -> list[Question]:
    """Each number in each expression."""
    return [Question("{% " + text + " %}", {}, {"n": json.loads(each)}) for each in NUMBERS for text in _OF_A_NUMBER]


def passed(number: str) -> Question:
    """The input of the child of a request with this number."""
    context = of_input({"process": "p", "attempt": 1, "input": {"n": json.loads(number)}})
    return Question(_CHILD_INPUT, {"context": context}, {})
