"""Splits JSON Lines by the value of a field, independent of S3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from slotkeeper.retry.errors import Poison

# Each part is a PUT of about 30 ms, so 1,000 take half of an attempt's time.
MAX_PARTS = 1000
# A parsed line can need fifty times its length in memory.
MAX_LINE_BYTES = 1024 * 1024

_EXPECTED = "every line must be a JSON object"


@dataclass
class Part:
    """The lines of one value, in one bytearray: as millions of small objects they would not fit into memory."""

    value: str
    records: int = 0
    content: bytearray = field(default_factory=bytearray, repr=False)

    def add(self, line: bytes) -> None:
        self.records += 1
        self.content += line
        self.content += b"\n"


def split(chunks: Iterable[bytes], by: str) -> list[Part]:
    """Return one part for each value of the field `by`, in the order of their first lines.

    Lines keep their bytes and their order. Empty lines are not records. Values are compared as text, numbers by their
    digits: 1 and "1" have the same part, 1 and 1.0 do not.

    Raises:
        Poison: the input is not valid. The message names the first wrong line, counted from 1.
    """
    parts: dict[str, Part] = {}
    for number, line in enumerate(_lines(chunks), start=1):
        if len(line) > MAX_LINE_BYTES:
            raise Poison(f"line {number} is too long: a line may have at most {MAX_LINE_BYTES} bytes")
        if not line.strip():
            continue
        value = _value(line, number, by)
        if value not in parts:
            if len(parts) == MAX_PARTS:
                raise Poison(f"line {number} has value {MAX_PARTS + 1} of {by!r}; up to {MAX_PARTS} are allowed")
            parts[value] = Part(value)
        parts[value].add(line)
    return list(parts.values())


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # Not splitlines(), which also ends a line at a carriage return. In JSON that is white space.
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE_BYTES:
            break  # `split` refuses this line, so the rest is not needed
    if rest:
        yield rest


def _value(line: bytes, number: int, by: str) -> str:
    try:
        record = _json.decode(line.decode())
    except UnicodeDecodeError as error:
        raise Poison(f"line {number} is not UTF-8 (byte {error.start + 1} of it)") from error
    except json.JSONDecodeError as error:
        raise Poison(f"line {number} is not JSON: {error.msg}, at character {error.colno}; {_EXPECTED}") from error
    except (ValueError, RecursionError) as error:
        raise Poison(f"line {number} is not JSON: {error}; {_EXPECTED}") from error
    if not isinstance(record, dict):
        raise Poison(f"line {number} is {_kind(record)}; {_EXPECTED}")
    if by not in record:
        raise Poison(f"line {number} has no field {by!r}, which every line must have")
    value = record[by]
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        raise Poison(f"{by!r} of line {number} is {_kind(value)}; it must be a text, a number or a boolean")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Poison(f"{by!r} of line {number} contains half of a surrogate pair, which is not a character") from error
    return value


def _kind(value: object) -> str:
    """Name the type of a value without its content, because reasons are logged and stored."""
    return {list: "an array", dict: "an object", bool: "a boolean", str: "a text or a number"}.get(type(value), "null")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text, so that they are not rounded, and long ones take no time to convert.
_json: json.JSONDecoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_number)
