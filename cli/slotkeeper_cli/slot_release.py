"""Estimates when the slot of an execution that has ended will be free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.targets import is_state_machine
from slotkeeper.slots.work import ENDED_STATES
from slotkeeper_cli.formatting import duration, iso, local_time, seconds
from slotkeeper_cli.holder_work import work_noun

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNITS = {"minute": 60, "hour": 3600, "day": 86400}
# Seconds for which the messages of a status event and the calls delay the two checks (docs/correctness.md, S4).
_EVENT_SECONDS = 5
_ENDED = ENDED_STATES | {*CLOSED_STATUSES}


@dataclass(frozen=True)
class SlotRelease:
    """When a slot will be free.

    Args:
        by: seconds since the epoch, also if the status event is lost; None if the janitor's schedule is not a rate.
        usual: seconds from the end of the work, or of the execution if that ended later, with the status event.
        noun: the work, `Glue run` or `child execution`.
    """

    by: float | None
    usual: int
    noun: str = "Glue run"

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
        return f"{by}, usually {duration(self.usual)} after its {self.noun} has ended"


def estimate(
    parameters: Mapping[str, str], ended_at: float, target: str, work: Mapping[str, str] | None, settle_seconds: int = 0
) -> SlotRelease:
    """When the janitor frees the slot of an execution that has ended.

    With the status event: after two checks, a gap apart. Without it: the grace time and two janitor runs after the end.
    A run before these stops live work, which takes some time to end. The end of a child execution needs no second
    check, but its settle time.

    Args:
        parameters: those of the stack.
        ended_at: when the execution ended, in seconds since the epoch.
        target: what it ran.
        work: its Glue run or child execution with its `state`; None if it has none.
        settle_seconds: those of the holder.
    """
    checks = 2 * int(parameters.get("LookGapSeconds") or 30)
    if is_state_machine(target) and work is not None:
        checks = settle_seconds
    usual, noun = checks + _EVENT_SECONDS, work_noun(target)
    rate = _RATE.fullmatch(parameters.get("JanitorSchedule") or "rate(1 minute)")
    if rate is None:
        return SlotRelease(None, usual, noun)
    runs = 2 if work is None or work["state"] in _ENDED else 3
    grace = int(parameters.get("GraceSeconds") or 120)
    return SlotRelease(ended_at + grace + settle_seconds + runs * int(rate[1]) * _UNITS[rate[2]], usual, noun)


def release_of(details: Mapping[str, Any]) -> SlotRelease:
    """The estimate that `SlotRelease.as_dict` has written."""
    by = details["slot_free_by"]
    noun = work_noun(details.get("target", ""))
    return SlotRelease(by and seconds(by), details["slot_usually_free_after_seconds"], noun)
