"""The requests of `make run TARGET=workflow`: those of a producer, and those of a caller that waits for each result.

Each asks for the summary of one month of weather, whose days are in its input.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.sample_data import split_by_month

from .slot_requests import Request, evenly_marked

PROCESS = "weather"
MOST_CALLED = 40  # iterations of an inline Map run at the same time ("Map workflow state": up to 40)
NOT_A_NUMBER = "n/a"


@dataclass(frozen=True)
class TargetWork:
    """Requests with an input. The caller asks for `called` while the producer's requests wait."""

    produced: Sequence[Request]
    called: Sequence[Request]

    @property
    def requests(self) -> list[Request]:
        return [*self.produced, *self.called]


def plan(text: str, *, requests: int, fail: float, run_id: str) -> TargetWork:
    """One request per month, and from the first month again if there are more. The caller has the second half."""
    months = split_by_month(text)
    names = list(months)
    planned = []
    for i, damaged in enumerate(evenly_marked(fail, requests)):
        month = names[i % len(names)]
        days = _days(months[month])
        if damaged:
            days[len(days) // 2]["temp_max"] = NOT_A_NUMBER
        given = {"month": month, "days": days}
        planned.append(Request(f"{run_id}-{i + 1:04d}-{month}", month, {}, damaged, input=given, process=PROCESS))
    called = min(requests // 2, MOST_CALLED)
    return TargetWork(planned[: len(planned) - called], planned[len(planned) - called :])


def _days(body: bytes) -> list[dict[str, Any]]:
    fields = ("temp_max", "precipitation")
    return [{name: float(day[name]) for name in fields} for day in csv.DictReader(body.decode().splitlines())]


def expected(given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an input that is not damaged, computed here and not by the state machine."""
    days = given["days"]
    return {
        "month": given["month"],
        "days": len(days),
        "temperature_max_c": max(day["temp_max"] for day in days),
        "precipitation_total_mm": round(math.fsum(day["precipitation"] for day in days), 2),
    }


def callers_input(queue_url: str, called: Sequence[Request]) -> dict[str, Any]:
    """The input of the caller's execution."""
    asked = [{"request_id": each.request_id, "input": each.input} for each in called]
    return {"queue_url": queue_url, "process": PROCESS, "requests": asked}
