"""A queued request, as a dispatch reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Queued:
    """A queued request, as the index of a process's queue contains it.

    Attributes:
        execution: the name of its workflow execution.
        place: text that sorts before the place of each request behind it.
        weight: in the unit of the limit, as the request states it. None: the process's default weight.
        start_before: the time from which it does not start any more, in seconds since the epoch; None: it states none.
        skips: whether it leaves the queue if it cannot start now.
    """

    execution: str
    place: str
    weight: int | None = None
    start_before: float | None = None
    skips: bool = False
