"""Numbers, and their texts, are those of JSONata 2.0.6.

AWS: "Transforming data with JSONata" (JSONata 2.0.6). Whole doubles print as integers (recorded by LocalStack's
snapshot tests of JSONata). MiniStack keeps the digits that $string of 2.0.6 rounds away, and whole numbers above 2^53.
Its $parse('null') has no value, and its $range of one number is an array (tests/conformance/test_jsonata.py).
"""

from collections.abc import Callable
from typing import Any

from dev.emulator import jsonata_values
from dev.emulator.engine.emulator import replace, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn


def apply() -> None:
    """Replace $string and $parse, unwrap $range of one number, and round the numbers of each value."""
    jsonata_values.apply()
    replace(sfn, "_sfn_jsonata_parse", lambda _original: jsonata_values.parse)
    wrap(sfn, "_sfn_jsonata_range", _range)
    wrap(sfn, "_evaluate_jsonata", _evaluate_jsonata)


def _range(original: Callable[..., Any], start: float, end: float, step: float) -> Any:
    values = original(start, end, step)
    return values[0] if len(values) == 1 else values


def _evaluate_jsonata(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return jsonata_values.doubles(original(*given, **named))
