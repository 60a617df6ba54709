"""The inputs: months of Seattle's daily weather as JSON Lines, to be split by the day's weather. Some are damaged."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence

from dev.scenarios.slots.work import read_dataset

SPLIT_BY = "weather"
NO_FIELD = "station"  # which no line has

Parts = Mapping[str, tuple[str, ...]]  # value of the field -> its lines


def read_months() -> list[tuple[str, list[str]]]:
    """(2012-01, its lines), in the order of the months."""
    months: dict[str, list[str]] = {}
    for day in csv.DictReader(read_dataset().splitlines()):
        months.setdefault(day["date"][:7].replace("/", "-"), []).append(json.dumps(day))
    return sorted(months.items())


def parts_of(lines: Sequence[str]) -> Parts:
    """What has to be published of an input: by a plain loop, so that it shares nothing with the worker's own."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        value = json.loads(line)[SPLIT_BY]
        found[value] = (*found.get(value, ()), line)
    return found


def content(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def damaged(lines: Sequence[str]) -> tuple[bytes, int]:
    """The same input with half a line in the middle, and that line's number from 1."""
    number = len(lines) // 2
    broken = list(lines)
    broken[number - 1] = broken[number - 1][: len(broken[number - 1]) // 2]
    return content(broken), number
