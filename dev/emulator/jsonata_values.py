"""Values of the Python package jsonata as JSONata 2.0.6 has them.

Step Functions documents JSONata 2.0.6 (Step Functions guide, "Transforming data with JSONata"). `make jsonata` compares
the workflow's expressions with that version. The package differs: its $string and `&` keep digits of whole numbers that
2.0.6 rounds away, and escape all characters but ASCII; its whole numbers are exact at any size, those of 2.0.6 are
doubles. Not corrected, and in no expression of the workflow: $count(null) is 0 here, and 1 in 2.0.6.
"""

import json
import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from jsonata.functions import Functions
from jsonata.jsonata import Jsonata
from jsonata.utils import Utils

NULL = Utils.NULL_VALUE
DIGITS = 15  # significant digits of a number in $string
_ROUNDED = Context(prec=DIGITS, rounding=ROUND_HALF_UP)  # as Number.prototype.toPrecision of ECMAScript rounds
_EXACT_WHOLE = 2**53  # every whole number up to this one is a double
_original_string = Functions.string


def apply() -> None:
    """Replace the package's $string, in expressions and in `&`."""
    Functions.string = staticmethod(string)
    Jsonata.static_frame.lookup("string").method = string


def parse(text: str) -> Any:
    """$parse of Step Functions. A function of the package that returns None has no value; null is one."""
    value = json.loads(text)
    return NULL if value is None else value


def doubles(value: Any) -> Any:
    """A value whose numbers are doubles. Whole ones below 1e21 are `int`, with the digits that ECMAScript writes."""
    if isinstance(value, dict):
        return {name: doubles(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [doubles(part) for part in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) and abs(value) <= _EXACT_WHOLE:
        return value
    number = float(value)
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number


def string(value: Any, prettify: Any = None) -> Any:
    """$string, and what `&` joins. None, for no value, has none."""
    if prettify:
        return _original_string(value, prettify)
    if isinstance(value, Utils.JList) and value.outer_wrapper:
        value = value[0]
    if value is None or isinstance(value, str):
        return value
    return _text(value) if value is NULL or isinstance(value, dict | list | int | float) else ""  # "": a function


def _text(value: Any) -> str:
    if value is None or value is NULL:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(str(name))}:{_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return '""'  # a function


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\u{ord(each):04x}" if "\ud800" <= each <= "\udfff" else each for each in quoted)


def _number(value: float) -> str:
    """The number, rounded to 15 significant digits, as Number::toString of ECMAScript writes it."""
    double = float(value)
    if not math.isfinite(double):
        raise ValueError(f"D1001: Number out of range: {value}")
    rounded = float(_ROUNDED.create_decimal_from_float(double))
    if not rounded:
        return "0"
    sign, figures, exponent = Decimal(repr(rounded)).normalize().as_tuple()
    digits, point = "".join(map(str, figures)), len(figures) + int(exponent)
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" * sign + text
