"""Schedules that fire earlier."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def bring_forward(scheduler: Any, group: str, name: str, to: float) -> None:
    """Let a one-time schedule fire at `to` (seconds since the epoch), or immediately if that is in the past."""
    schedule = scheduler.get_schedule(GroupName=group, Name=name)
    scheduler.update_schedule(
        Name=name,
        GroupName=group,
        ScheduleExpression=f"at({datetime.fromtimestamp(to, UTC):%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow=schedule["FlexibleTimeWindow"],
        ActionAfterCompletion=schedule["ActionAfterCompletion"],
        Target=schedule["Target"],
    )
