"""Weaker forms of a write to DynamoDB: without a term of its condition, without an action of its update.

    mutations("update_item", "limit = :limit AND used < limit", "SET used = used + :one")
    # without limit = :limit | without used < limit | used < limit with <= | ... | without SET used = used + :one

A term is named by its text. Numbers in placeholders are left out, so the equal terms of a write that concerns several
holders are one: all are changed together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, reduce

from tests.simulation.aws import conditions
from tests.simulation.aws.conditions import And, BeginsWith, Between, Comparison, Exists, In, Not, Or, Test
from tests.simulation.aws.expressions import Operand, Path, Size, Value
from tests.simulation.aws.updates import Action, Term, update
from tests.simulation.frozen import Record, record

LEFT_OUT = "is not made"
# `<>` instead of `<` is the known failure F6.
_WEAKER = {"<": ("<=", "<>"), ">": (">=", "<>")}

Pick = Callable[[str], bool]


def _general(expression: str) -> str:
    """The expression without numbers in placeholders."""
    return re.sub(r"(?<=[#a-z])\d+(_\d+)?\b", "", expression)


@cache
def mutations(kind: str, condition: str, change: str) -> tuple[str, ...]:
    """The names of all mutations of a write with these expressions."""
    found: dict[str, None] = {}

    def note(name: str) -> bool:
        found[name] = None
        return False

    _changed(kind, condition, change, note)
    return tuple(found)


def mutated(kind: str, request: Record, names: frozenset[str]) -> Record | None:
    """The request with these mutations, without names and values that it no longer uses; None if it is left out."""
    before = (request.get("ConditionExpression") or "", request.get("UpdateExpression") or "")
    texts = _mutated(kind, *before, names)
    if texts is None:
        return None
    parsed = [parse(text).used for parse, text in zip((conditions.condition, update), texts, strict=True) if text]
    used = {placeholder for each in parsed for placeholder in each.placeholders}
    fields = dict(request.fields)
    for key in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        given = fields.pop(key, record({})).fields
        if kept := {name: value for name, value in given.items() if name in used}:
            fields[key] = record(kept)
    for key, text in zip(("ConditionExpression", "UpdateExpression"), texts, strict=True):
        fields.pop(key, None)
        if text:
            fields[key] = text
    return record(fields)


@cache
def _mutated(kind: str, condition: str, change: str, names: frozenset[str]) -> tuple[str, str] | None:
    return _changed(kind, condition, change, names.__contains__)


def _changed(kind: str, condition: str, change: str, pick: Pick) -> tuple[str, str] | None:
    """The texts of the write's expressions, changed in each place that is picked; None if it is left out."""
    if kind != "update_item" and pick(LEFT_OUT):
        return None
    test = conditions.condition(condition).test if condition else None
    if test is not None and not isinstance(test, And) and pick(f"without {_general(_text(test))}"):
        test = None
    test = test and _test(test, pick)
    actions = [_action(each, pick) for each in (update(change).actions if change else ())]
    kept = [each for each in actions if each is not None]
    clauses = [
        f"{clause} {', '.join(texts)}"
        for clause, texts in (
            ("SET", [_set(action) for action in kept if action.term]),
            ("REMOVE", [_text(action.path) for action in kept if not action.term]),
        )
        if texts
    ]
    return _text(test) if test else "", " ".join(clauses)


def _test(test: Test, pick: Pick) -> Test | None:
    match test:
        case And():
            parts = [part for part in _parts(And, test) if not pick(f"without {_general(_text(part))}")]
            changed = [each for part in parts if (each := _test(part, pick))]
            return reduce(And, changed) if changed else None
        case Or():
            parts = [part for part in _parts(Or, test) if not pick(f"never {_general(_text(part))}")]
            changed = [each for part in parts if (each := _test(part, pick))]
            return reduce(Or, changed) if changed else None
        case In(operand, others) if len(others) > 1:
            return In(
                operand, [other for other in others if not pick(f"{_general(_text(operand))} never {_text(other)}")]
            )
        case Comparison(left, comparator, right):
            for weaker in _WEAKER.get(comparator, ()):
                if pick(f"{_general(_text(test))} with {weaker}"):
                    return Comparison(left, weaker, right)
    return test


def _parts(kind: type[And | Or], test: Test) -> list[Test]:
    if not isinstance(test, kind):
        return [test]
    return [*_parts(kind, test.first), *_parts(kind, test.second)]


def _action(action: Action, pick: Pick) -> Action | None:
    if pick(f"without {'SET' if action.term else 'REMOVE'} {_general(_set(action))}"):
        return None
    for field in ("term", "second"):
        term = getattr(action, field)
        if term and term.path and pick(f"{_general(_term(Term(term.operand)))} for {_general(_term(term))}"):
            action = action._replace(**{field: Term(term.operand)})
    return action


# The text of an expression ----------------------------------------------------------------------------------------


def _text(part: Test | Operand) -> str:
    match part:
        case Path(names):
            return ".".join(names)
        case Value(name):
            return name
        case Size(path):
            return f"size({_text(path)})"
        case Exists(path, expected):
            return f"{'attribute_exists' if expected else 'attribute_not_exists'}({_text(path)})"
        case BeginsWith(path, prefix):
            return f"begins_with({_text(path)}, {_text(prefix)})"
        case Comparison(left, comparator, right):
            return f"{_text(left)} {comparator} {_text(right)}"
        case Between(operand, low, high):
            return f"{_text(operand)} BETWEEN {_text(low)} AND {_text(high)}"
        case In(operand, others):
            return f"{_text(operand)} IN ({', '.join(map(_text, others))})"
        case Not(test):
            return f"NOT ({_text(test)})"
        case And():
            return " AND ".join(
                f"({_text(each)})" if isinstance(each, Or) else _text(each) for each in _parts(And, part)
            )
        case Or():
            return " OR ".join(
                f"({_text(each)})" if isinstance(each, And) else _text(each) for each in _parts(Or, part)
            )
    raise TypeError(f"{part} has no text")


def _set(action: Action) -> str:
    if action.term is None:
        return _text(action.path)
    summed = f" {action.sign} {_term(action.second)}" if action.second else ""
    return f"{_text(action.path)} = {_term(action.term)}{summed}"


def _term(term: Term) -> str:
    return f"if_not_exists({_text(term.path)}, {_text(term.operand)})" if term.path else _text(term.operand)
