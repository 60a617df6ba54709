"""Expressions whose value depends on how JSONata represents numbers, null and sequences of one value.

None has an expected value: JSONata 2.0.6 gives it (reference.py).
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from tests.workflow.case import of_input
from tests.workflow.definition import states
from tests.workflow.interpreter import Variables


class Question(NamedTuple):
    """A field in the form of the definition's, and the inputs of its expressions."""

    field: Any
    states: dict[str, Any]
    variables: Variables


_EDGES = [
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
_VALUES = [
    *(None, False, 0, "", [], {}, [None], {"a": None}, [[]]),
    *("text\ud800\u2028\x7f\ufffe", [1, "a", None, {"b": [True]}]),
]
_OF_A_NUMBER = ("$string($n)", "$n & ''", "$n", "$string({'a': [$n]})")
_OF_A_VALUE = (
    *("$variable", "$states.result.value", "$states.result.missing", "$exists($variable)", "$string($variable)"),
    *("$states.result.value = null", "$variable ? 'yes' : 'no'", "$type($variable)", "$variable & ''", "[$variable]"),
    *("{'a': $variable}", "$merge([{'a': $variable}, {'b': 1}])", "$string($states.result)", "[$variable, 1][0]"),
    *("$lookup({'a': $variable}, 'a')", "$keys($variable)", "$states.result.value[0]", "$not($variable)"),
)
_CONSTANT = (
    *("0.1 + 0.2", "$string(0.1 + 0.2)", "1/3 & ''", "$string(2/3)", "10 / 2", "$string(10 / 2)", "$string(-0)"),
    *("[1..1]", "[1..3]", "[2..1]", "null", "[null]", "[]", "{}", "$parse('null')", "$parse('[1.0]')", "$parse('{')"),
)
_CHILD_INPUT = states()["RunStateMachine"]["Arguments"]["Input"]


def questions(random_numbers: int = 100) -> list[Question]:
    """All of them.

    Args:
        random_numbers: as for `numbers`.
    """
    found = [json.loads(number) for number in numbers(random_numbers)]
    asked = [Question(_field(text), {}, {"n": number}) for number in found for text in _OF_A_NUMBER]
    for value in _VALUES:
        asked += [Question(_field(text), {"result": {"value": value}}, {"variable": value}) for text in _OF_A_VALUE]
    return asked + [Question(_field(text), {}, {}) for text in _CONSTANT]


def passed(number: str) -> Question:
    """The input of the child of a request with this number."""
    context = of_input({"process": "p", "attempt": 1, "input": {"n": json.loads(number)}})
    return Question(_CHILD_INPUT, {"context": context}, {})


def numbers(random_numbers: int = 100) -> list[str]:
    """Numbers as JSON. `random_numbers`: how many to add to those at the edges, the same ones each time."""
    return _EDGES + _random_numbers(random_numbers)


def _field(expression: str) -> str:
    return "{% " + expression + " %}"


def _random_numbers(count: int) -> list[str]:
    random = Random(1)  # noqa: S311

    def number() -> str:
        digits = "".join(random.choices("0123456789", k=random.randint(1, 19)))
        sign, point = random.choice(("", "-")), random.choice(("", f".{random.randrange(10**6)}"))
        exponent = random.choice(("", "", f"e{random.randint(-30, 30)}"))
        return f"{sign}{int(digits)}{point}{exponent}"

    return [number() for _ in range(count)]
