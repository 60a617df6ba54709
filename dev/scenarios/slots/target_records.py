"""The records of `make run TARGET=workflow`: those of the requests, the child executions, and the caller's result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from .slot_records import Records
from .slot_requests import SentRequest


@dataclass(frozen=True)
class Child:
    """An execution of the target. It has the name of its workflow. `stopped` is None while it runs."""

    name: str
    status: str
    started: float
    stopped: float | None
    output: Any = None


@dataclass(frozen=True)
class Called:
    """The caller's execution: its requests and their answers.

    Args:
        asked: request ids, in the order of the Map's items.
        answers: the Map's results: each has `request_id`, and `result` or `error`. Empty unless it succeeded.
    """

    status: str
    asked: Sequence[str]
    answers: Sequence[Mapping[str, Any]]
    started: float
    stopped: float | None

    @classmethod
    def of(cls, described: Mapping[str, Any], asked: Sequence[str]) -> Self:
        """From DescribeExecution."""
        stopped = described.get("stopDate")
        return cls(
            status=described["status"],
            asked=asked,
            answers=json.loads(described.get("output") or "[]"),
            started=described["startDate"].timestamp(),
            stopped=stopped and stopped.timestamp(),
        )


@dataclass(frozen=True)
class TargetRecords:
    """All records of one run. Times: seconds since the epoch. `sent`: by the producer, then by the caller."""

    sent: Sequence[SentRequest]
    records: Records
    children: Sequence[Child]
    called: Called
