"""When a downstream's circuit breaker was open in a period. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from slotkeeper.retry.downstream.health import Change, Health, State
from slotkeeper.retry.downstream.rules import MAX_CHANGES


@dataclass(frozen=True)
class BreakerHistory:
    """The breaker of one downstream in a period.

    Args:
        openings, closings: how often it opened and closed; probes in between are not changes.
        open_seconds: for how long it was open.
        is_open: now.
        changes: those of the period, the oldest first.
        incomplete: the item has the last changes only, and older ones were in the period. Then the numbers are minima.
    """

    downstream: str
    openings: int
    closings: int
    open_seconds: float
    is_open: bool
    changes: tuple[Change, ...]
    incomplete: bool


def breaker_history(downstream: str, health: Health, start: float, end: float) -> BreakerHistory:
    """Compute the history from `start` to `end`, epoch seconds, from the changes that the item has."""
    opened: float | None = None
    seconds = 0.0
    openings = closings = 0
    for change in health.changes:
        if change.at >= end:
            break
        if change.to == State.OPEN and opened is None:
            opened = change.at
            openings += change.at >= start
        elif change.to == State.CLOSED and opened is not None:
            seconds += max(0.0, change.at - max(opened, start))
            closings += change.at >= start
            opened = None
    if opened is not None:
        seconds += end - max(opened, start)
    return BreakerHistory(
        downstream,
        openings,
        closings,
        seconds,
        health.state != State.CLOSED,
        tuple(change for change in health.changes if start <= change.at < end),
        incomplete=len(health.changes) >= MAX_CHANGES and health.changes[0].at > start,
    )
