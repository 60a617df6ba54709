"""The causes of failed expressions, and the variables that an Assign sees.

AWS: a cause names the state, the event of its entry, the field and the expression: recorded in
tests/conformance/test_stepfunctions.py. "Passing data between states with variables": every expression of an Assign
sees the variables as they were on entry to the state.
MiniStack gives only the end of such a cause, and assigns one variable after the other.
"""

import contextvars
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import replace, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

UNDEFINED = "JSONata expression did not return a result"
WRONG_TYPE = "The JSONata expression specified"
_field: contextvars.ContextVar[str] = contextvars.ContextVar("field", default="")


def apply() -> None:
    """Note the field of each expression, and replace the causes."""
    wrap(sfn, "_apply_jsonata_arguments", lambda original, *known: _in_field("Arguments", original, *known))
    wrap(sfn, "_apply_jsonata_output", lambda original, *a, **named: _in_field("Output", original, *a, **named))
    wrap(sfn, "_jsonata_state_field", _state_field)
    replace(sfn, "_apply_state_assign", lambda _original: _assign)
    replace(sfn, "_apply_jsonata_template", lambda _original: _template)


def _in_field(name: str, original: Callable[..., Any], *known: Any, **named: Any) -> Any:
    token = _field.set(_field.get() + name)
    try:
        return original(*known, **named)
    finally:
        _field.reset(token)


def _assign(state: Any, raw_input: Any, context: Any, result: Any = None, error_output: Any = None) -> None:
    assign = state.get("Assign")
    if context is not None and isinstance(assign, dict) and sfn._state_query_language(state, context) == "JSONata":
        assigned = _in_field("Assign", _template, assign, raw_input, context, result, error_output)
        context.setdefault("variables", {}).update(assigned)


def _template(value: Any, raw_input: Any, context: Any = None, result: Any = None, error_output: Any = None) -> Any:
    known = (raw_input, context, result, error_output)
    if isinstance(value, dict):
        return {name: _in_field(f"/{name}", _template, part, *known) for name, part in value.items()}
    if isinstance(value, list):
        return [_in_field(f"[{number}]", _template, part, *known) for number, part in enumerate(value)]
    if not (isinstance(value, str) and value.startswith("{%") and value.endswith("%}")):
        return value
    expression = _text(value)
    try:
        return sfn._evaluate_jsonata(expression, *known)
    except sfn._ExecutionError as error:
        what = (
            "returned nothing (undefined)."
            if error.cause.startswith(UNDEFINED)
            else f"threw an error during evaluation. {error.cause}"
        )
        raise _failure(context, expression, what) from None


def _state_field(
    original: Callable[..., Any], state: Any, field: str, expected: str, raw_input: Any, context: Any
) -> Any:
    try:
        return _in_field(field, original, state, field, expected, raw_input, context)
    except sfn._ExecutionError as error:
        if not error.cause.startswith(WRONG_TYPE):
            raise
        what = error.cause.partition(f"the field '{field}' ")[2]
        token = _field.set(_field.get() + field)
        try:
            raise _failure(context, _text(str(state[field])), what) from None
        finally:
            _field.reset(token)


def _text(value: str) -> str:
    return value.removeprefix("{%").removesuffix("%}").strip()


def _failure(context: Any, expression: str, what: str) -> Exception:
    name = ((context or {}).get("State") or {}).get("Name", "")
    cause = (
        f"An error occurred while executing the state '{name}' (entered at the event id #{_entered_at(name)}). "
        f"The JSONata expression '{expression}' specified for the field '{_field.get()}' {what}"
    )
    error: Exception = sfn._ExecutionError("States.QueryEvaluationError", cause)
    return error


def _entered_at(name: str) -> int:
    drive = drives.current.get()
    events = drive.execution["events"] if drive is not None else ()
    entries = (
        event["id"] for event in reversed(events) if event.get("stateEnteredEventDetails", {}).get("name") == name
    )
    return next(entries, 0)
