"""Sample data for requests: Seattle's daily weather of 2012 to 2015 (NOAA, public domain), by month.

The vega_datasets package contains it, so a run needs no download.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

SPLIT_BY = "weather"  # a field of every line


def read_dataset() -> str:
    """The CSV text."""
    # Located by the package's metadata, because importing the package imports pandas.
    path = Path(str(distribution("vega_datasets").locate_file("vega_datasets/_data/seattle-weather.csv")))
    return path.read_text(encoding="utf-8")


def split_by_month(text: str) -> dict[str, bytes]:
    """Month (2012-01) -> CSV of that month, in the order of the months."""
    header, *rows = text.splitlines()
    months: dict[str, list[str]] = {}
    for row in rows:
        months.setdefault(row[:7].replace("/", "-"), []).append(row)
    return {month: "\n".join([header, *months[month], ""]).encode() for month in sorted(months)}


def months_as_json_lines() -> dict[str, list[str]]:
    """Month (2012-01) -> a JSON object for each day, in the order of the months."""
    months = split_by_month(read_dataset())
    return {
        month: [json.dumps(day) for day in csv.DictReader(body.decode().splitlines())] for month, body in months.items()
    }


def content(lines: Sequence[str]) -> bytes:
    """The lines as an object of JSON Lines."""
    return "".join(f"{line}\n" for line in lines).encode()
