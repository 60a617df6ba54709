"""The work list: a public data set, cut into one part a month, and the requests that read the parts.

The data set is Seattle's daily weather of 2012 to 2015 (NOAA, public domain), carried inside the vega_datasets package,
so a run needs no download.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

PROCESS = "sample"  # the template's default of ProcessName


@dataclass(frozen=True)
class Part:
    """One object of the input: a month's rows under the data set's header."""

    month: str  # 2012-01
    key: str
    body: bytes


@dataclass(frozen=True)
class Request:
    """One message for RequestQueue. `damaged` is what the run expects of it: the job must fail on its part."""

    request_id: str
    month: str
    arguments: dict[str, str]
    damaged: bool

    @property
    def output_key(self) -> str:
        return self.arguments["--output_key"]

    def body(self) -> dict[str, Any]:
        """The message of the design's contract."""
        return {"process": PROCESS, "request_id": self.request_id, "arguments": self.arguments}


@dataclass(frozen=True)
class WorkList:
    parts: list[Part]
    requests: list[Request]


def read_dataset() -> str:
    """The CSV text of the data set, as the package carries it."""
    # Found by its metadata: importing the package would import pandas, for a file that is read as text.
    path = Path(str(distribution("vega_datasets").locate_file("vega_datasets/_data/seattle-weather.csv")))
    return path.read_text(encoding="utf-8")


def split_by_month(text: str) -> dict[str, bytes]:
    """Month (2012-01) -> CSV of that month, in the order of the months."""
    header, *rows = text.splitlines()
    months: dict[str, list[str]] = {}
    for row in rows:
        months.setdefault(row[:7].replace("/", "-"), []).append(row)
    return {month: "\n".join([header, *months[month], ""]).encode() for month in sorted(months)}


def damage(body: bytes) -> bytes:
    """The same month with a sensor's failure in the middle: one day's temp_max is not a number."""
    lines = body.decode().splitlines()
    middle = 1 + (len(lines) - 1) // 2
    cells = lines[middle].split(",")
    cells[lines[0].split(",").index("temp_max")] = "n/a"
    lines[middle] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def spread(share: float, count: int) -> list[bool]:
    """`count` marks of which the share is True, evenly spread and the same each time; any share above 0 marks one."""
    marked = max(1, round(share * count)) if share > 0 else 0
    return [(i + 1) * marked // count > i * marked // count for i in range(count)]


def plan(text: str, *, requests: int, fail: float, run_id: str) -> WorkList:
    """One request a month, in the order of the months, going round again when there are more requests than months.

    A damaged request reads a copy of its month that really is damaged. Only parts that some request reads are listed.
    The bucket is the job's own default argument.
    """
    months = split_by_month(text)
    names = list(months)
    parts: dict[str, Part] = {}
    listed: list[Request] = []
    for i, damaged in enumerate(spread(fail, requests)):
        month = names[i % len(names)]
        key = f"input/{'damaged/' if damaged else ''}{month}.csv"
        parts.setdefault(key, Part(month, key, damage(months[month]) if damaged else months[month]))
        request_id = f"{run_id}-{i + 1:04d}-{month}"
        arguments = {
            "--input_key": key,
            "--output_key": f"output/{run_id}/{request_id}.json",
        }
        listed.append(Request(request_id, month, arguments, damaged))
    return WorkList(list(parts.values()), listed)
