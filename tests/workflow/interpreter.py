"""The interpreter of the workflow's definition, for the paths (paths.py) and for the simulation.

Expressions are evaluated as JSONata. As in Step Functions, an expression without a value fails its state, and null is a
value (recorded by LocalStack's snapshot test test_map_state_items_eval_jsonata_fail[null]). A state's Assign and Catch
see the variables as they were when the state was entered (Step Functions Developer Guide, "Passing data between states
with variables"). No state reads its input, so the interpreter has none.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from typing import Any, NamedTuple

import jsonata

from dev.emulator import jsonata_values
from tests.simulation.frozen import freeze
from tests.workflow.definition import END, states, targets

ME = "p-1"
RANDOM = 0.5  # of $random: paths must be reproducible
DATA_LIMIT_EXCEEDED = "States.DataLimitExceeded"
# Whether States.ALL matches this error. It does in recorded executions (tests/facts/state_facts.py). The Step
# Functions guide, "Handling errors in Step Functions workflows", states that it does not.
ALL_CATCHES_DATA_LIMIT = True
SUBSTITUTES = {
    "WorkTimeoutMinutes": "60",
    "GlueCheckSeconds": "30",
    "PermittedTargets": ",".join(
        [
            ":job/j",
            "arn:aws:glue:us-east-1:123456789012:job/job",
            "arn:aws:glue:us-east-1:123456789012:job/load*-of-7",
            "",
            "arn:aws:states:us-east-1:123456789012:stateMachine:child",
            "arn:aws:states:*:123456789012:stateMachine:any*",
            "arn:stateMachine:child",
        ]
    ),
}
Variables = dict[str, Any]
jsonata_values.apply()


class StateFailed(Exception):
    """A state failed with this error, as catchers see it."""

    def __init__(self, error: str, cause: str | None = None) -> None:
        super().__init__(f"{error}: {cause}")
        self.error, self.cause = error, cause


# Evaluation ----------------------------------------------------------------------------------------------------------


def evaluate(template: Any, known: dict[str, Any], variables: Variables | None = None) -> Any:
    """A field's value: its expressions evaluated with `known` as $states, and these variables.

    Raises:
        StateFailed: States.QueryEvaluationError: an expression failed, or has no value.
    """
    if isinstance(template, dict):
        return {key: evaluate(part, known, variables) for key, part in template.items()}
    if isinstance(template, list):
        return [evaluate(part, known, variables) for part in template]
    if not isinstance(template, str) or not template.startswith("{%"):
        return template
    expression = deployed(template).removeprefix("{%").removesuffix("%}").strip()
    # The package takes a variable that is None for one without a value, and returns None for null and for no value.
    given = {name: jsonata_values.NULL if value is None else value for name, value in (variables or {}).items()}
    bindings = {"states": known, **given}
    try:
        value = _compiled(expression).evaluate(None, bindings)
        is_defined = value is not None or _compiled(f"$exists(({expression}))").evaluate(None, bindings)
    except Exception as error:
        raise _failed(template, f"threw an error during evaluation. {error}") from error
    if not is_defined:
        raise _failed(template, "returned nothing (undefined).")
    return jsonata_values.doubles(value)


def _failed(template: str, what: str) -> StateFailed:
    """The failure of an expression, whose cause quotes it (tests/facts/state_facts.py)."""
    return StateFailed("States.QueryEvaluationError", f"The JSONata expression '{template[2:-2].strip()}' {what}")


def deployed(expression: str) -> str:
    """The expression with the substitutions of a deployment."""
    for name, value in SUBSTITUTES.items():
        expression = expression.replace("${" + name + "}", value)
    return expression


@cache
def _compiled(expression: str) -> Any:
    compiled = jsonata.Jsonata.jsonata(expression)
    compiled.register_lambda("hash", lambda value, algorithm: hashlib.new(algorithm, value.encode()).hexdigest())
    compiled.register_lambda("parse", jsonata_values.parse)
    compiled.register_lambda("random", lambda: RANDOM)
    compiled.register_lambda("uuid", lambda: "00000000-0000-4000-8000-000000000000")
    return compiled


def mentioned(template: Any) -> set[str]:
    """The names of the variables that its expressions read."""
    text = json.dumps(template)
    parameters = re.findall(r"\$(\w+)", " ".join(re.findall(r"function\(([^)]*)\)", text)))
    return {*re.findall(r"\$([a-z_]+)\b(?!\()", text)} - {"states", *re.findall(r"\$(\w+) :=", text), *parameters}


class _Reads(NamedTuple):
    """The variables and values that an expression reads.

    Attributes:
        names: of variables.
        parts: its parts of $states, as a tree of names; None is a whole part.
    """

    names: set[str]
    parts: dict[str, Any]


@cache
def _reads(expression: str) -> _Reads:
    parts: dict[str, Any] = {}
    for path in sorted(re.findall(r"\$(states(?:\.\w+)*)", expression)):
        *parents, last = path.split(".")
        at: Any = parts
        for name in parents:
            at = at.setdefault(name, {})
            if at is None:  # an earlier, shorter path reads the whole part
                break
        else:
            at[last] = None
    return _Reads(mentioned(expression), parts)


def _part(value: Any, parts: dict[str, Any] | None) -> Any:
    """A value with these parts only."""
    if parts is None or not isinstance(value, dict):
        return value
    return {name: _part(value[name], within) for name, within in parts.items() if name in value}


_evaluated: dict[Any, Any] = {}


def remembered(template: Any, known: dict[str, Any], variables: Variables) -> Any:
    """The result of `evaluate`. Each expression is computed once for its inputs, since JSONata is slow in Python.

    A variable without a value fails its state, even where JSONata would evaluate it to false.
    """
    if isinstance(template, dict):
        return {name: remembered(part, known, variables) for name, part in template.items()}
    if isinstance(template, list):
        return [remembered(part, known, variables) for part in template]
    if not isinstance(template, str) or not template.startswith("{%"):
        return template
    reads = _reads(template)
    if missing := reads.names - variables.keys():
        raise StateFailed("States.QueryEvaluationError", f"no value: {missing}")
    used = {name: variables[name] for name in reads.names}
    states = _part({"states": known}, reads.parts)
    key = (template, freeze(states), freeze(used))
    if key not in _evaluated:
        try:
            _evaluated[key] = evaluate(template, states.get("states", {}), used)
        except StateFailed as failed:
            _evaluated[key] = failed
    value = _evaluated[key]
    if isinstance(value, StateFailed):
        raise StateFailed(value.error, value.cause)
    return value


def forget() -> None:
    """Clear the cache, to bound memory."""
    _evaluated.clear()


class State:
    """A state of the definition. `context` is the context object, and `variables` are those at the state's entry."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.kind: str = fields["Type"]
        self.needs_start_time = "StartTime" in json.dumps(fields)
        self.needs_entered_time = "EnteredTime" in json.dumps(fields)

    def value(self, field: str, context: dict[str, Any], variables: Variables) -> Any:
        """A field's value on entry."""
        return remembered(self.fields[field], {"context": context}, variables)

    def choose(self, context: dict[str, Any], variables: Variables) -> str:
        """The next state of a Choice."""
        for rule in self.fields["Choices"]:
            condition = remembered(rule["Condition"], {"context": context}, variables)
            assert isinstance(condition, bool), rule
            if condition:
                return str(rule["Next"])
        return str(self.fields["Default"])

    def leave(self, context: dict[str, Any], variables: Variables, **more: Any) -> tuple[str, Variables]:
        """The following state and its variables. `result`: a task's.

        Raises:
            StateFailed: an expression of Assign failed.
        """
        known = {"context": context, **more}
        assigned = remembered(self.fields.get("Assign", {}), known, variables)
        return self.fields.get("Next", END), {**variables, **assigned}

    def catch(self, failed: StateFailed, context: dict[str, Any], variables: Variables) -> tuple[str, Variables]:
        """The state after the first catcher of the error, and its variables. Raises the error if there is none."""
        for catcher in self.fields.get("Catch", []):
            if matches(catcher, failed.error):
                output = {"Error": failed.error} | ({"Cause": failed.cause} if failed.cause is not None else {})
                known = {"context": context, "errorOutput": output}
                return catcher["Next"], {**variables, **remembered(catcher.get("Assign", {}), known, variables)}
        raise failed

    def retry_after(self, error: str, retried: dict[int, int]) -> float | None:
        """Seconds until the next retry, which is counted; None if there is none."""
        for number, rule in enumerate(self.fields.get("Retry", [])):
            if matches(rule, error):
                before = retried.get(number, 0)
                if before >= rule.get("MaxAttempts", 3):
                    return None
                retried[number] = before + 1
                seconds = rule.get("IntervalSeconds", 1) * rule.get("BackoffRate", 2) ** before
                return min(seconds, rule.get("MaxDelaySeconds", seconds))  # type: ignore[no-any-return]
        return None


def still_read(name: str) -> set[str]:
    """The variables that a state, or one that can come after it, may read; the others have no effect from there."""
    reached, todo = set[str](), [name]
    while todo:
        at = todo.pop()
        if at not in reached:
            reached.add(at)
            todo += targets(states()[at])
    return mentioned([states()[at] for at in reached])


def matches(rule: dict[str, Any], error: str) -> bool:
    """Whether a retrier or a catcher is for this error."""
    catches_all = "States.ALL" in rule["ErrorEquals"] and (error != DATA_LIMIT_EXCEEDED or ALL_CATCHES_DATA_LIMIT)
    return error in rule["ErrorEquals"] or catches_all


STATES = {name: State(fields) for name, fields in states().items()}
