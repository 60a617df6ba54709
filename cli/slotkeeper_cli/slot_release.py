"""Estimates when the slot of an execution that has ended will be free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.glue import ENDED_STATES
from slotkeeper_cli.formatting import duration, iso, local_time, seconds

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNITS = {"minute": 60, "hour": 3600, "day": 86400}
# Seconds for which the messages of a status event and the calls delay the two checks (docs/correctness.md, S4).
_EVENT_SECONDS = 5


@dataclass(frozen=True)
class SlotRelease:
    """When a slot will be free.

    Args:
        by: seconds since the epoch, also if the status event is lost; None if the janitor's schedule is not a rate.
        usual: seconds from the end of the Glue run, or of the execution if that ended later, with the status event.
    """

    by: float | None
    usual: int

    def as_dict(self) -> dict[str, Any]:
        """The estimate as JSON shows it."""
        return {
            "slot_free_by": None if self.by is None else iso(self.by),
            "slot_usually_free_after_seconds": self.usual,
        }

    def text(self, now: float) -> str:
        """The estimate as text, such as `by about 2026-11-22 14:05:30 CET, usually 1 min 5 s after ...`."""
        if self.by is not None and now > self.by:
            return f"by about {local_time(self.by)}, which has passed: run slotkeeper holder release"
        by = "in a run after GraceSeconds" if self.by is None else f"by about {local_time(self.by)}"
        return f"{by}, usually {duration(self.usual)} after its Glue run has ended"


def estimate(parameters: Mapping[str, str], ended_at: float, run: Mapping[str, str] | None) -> SlotRelease:
    """When the janitor frees the slot of an execution that has ended.

    With the status event: after two checks, a gap apart. Without it: the grace time and two janitor runs after the end.
    A run before these stops a live Glue run, and Glue takes some time to stop it.

    Args:
        parameters: those of the stack.
        ended_at: when the execution ended, in seconds since the epoch.
        run: its Glue run with its `state`; None if it has none.
    """
    usual = 2 * int(parameters.get("LookGapSeconds") or 30) + _EVENT_SECONDS
    rate = _RATE.fullmatch(parameters.get("JanitorSchedule") or "rate(1 minute)")
    if rate is None:
        return SlotRelease(None, usual)
    runs = 2 if run is None or run["state"] in ENDED_STATES else 3
    grace = int(parameters.get("GraceSeconds") or 120)
    return SlotRelease(ended_at + grace + runs * int(rate[1]) * _UNITS[rate[2]], usual)


def release_of(details: Mapping[str, Any]) -> SlotRelease:
    """The estimate that `SlotRelease.as_dict` has written."""
    by = details["slot_free_by"]
    return SlotRelease(by and seconds(by), details["slot_usually_free_after_seconds"])
