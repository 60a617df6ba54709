"""Expressions of Step Functions: JSONata's values, the causes of failures, and assignments."""

import contextvars
from collections.abc import Callable
from typing import Any

from dev.emulator import jsonata_values
from dev.emulator.engine import drives
from dev.emulator.engine.emulator import patch, put, setting, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

UNDEFINED = "JSONata expression did not return a result"
WRONG_TYPE = "The JSONata expression specified"
_field: contextvars.ContextVar[str] = contextvars.ContextVar("field", default="")


@patch
def stepfunctions_jsonata() -> None:
    """Numbers, and their texts, are those of JSONata 2.0.6.

    AWS: "Transforming data with JSONata" (JSONata 2.0.6). Whole doubles print as integers (recorded by LocalStack's
    snapshot tests of JSONata). MiniStack keeps the digits that $string of 2.0.6 rounds away, and whole numbers above
    2^53. Its $parse('null') has no value, and its $range of one number is an array.
    Shown by the row null_is_a_value of tests/facts.
    """
    jsonata_values.apply()
    put(sfn, "_sfn_jsonata_parse", jsonata_values.parse)
    wrap(sfn, "_sfn_jsonata_range", _range)
    wrap(sfn, "_evaluate_jsonata", _evaluate_jsonata)


def _range(original: Callable[..., Any], start: float, end: float, step: float) -> Any:
    values = original(start, end, step)
    return values[0] if len(values) == 1 else values


def _evaluate_jsonata(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return jsonata_values.doubles(original(*given, **named))


@patch
def stepfunctions_expressions() -> None:
    """A cause names the failed expression, and each expression of an Assign sees the variables on entry to the state.

    AWS: a cause names the state, the event of its entry, the field and the expression (recorded). "Passing data
    between states with variables": every expression of an Assign sees the variables as they were on entry to the state.
    MiniStack gives only the end of such a cause, and assigns one variable after the other.
    Shown by the rows causes_of_expressions, assign_sees_earlier_values, undefined_in_assign_and_arguments of
    tests/facts.
    """
    wrap(sfn, "_apply_jsonata_arguments", lambda original, *known: _in_field("Arguments", original, *known))
    wrap(sfn, "_apply_jsonata_output", lambda original, *a, **named: _in_field("Output", original, *a, **named))
    wrap(sfn, "_jsonata_state_field", _state_field)
    put(sfn, "_apply_state_assign", _assign)
    put(sfn, "_apply_jsonata_template", _template)


def _in_field(name: str, original: Callable[..., Any], *known: Any, **named: Any) -> Any:
    with setting(_field, _field.get() + name):
        return original(*known, **named)


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
        raise _in_field(field, _failure, context, _text(str(state[field])), what) from None


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
