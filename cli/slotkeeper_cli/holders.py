"""Holders of slots: their work, when a slot will be free, and both as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.targets import kind_of
from slotkeeper.slots.work import ENDED_STATES
from slotkeeper_cli.formatting import count, duration, iso, local_time

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNITS = {"minute": 60, "hour": 3600, "day": 86400}
# Seconds for which the messages of a status event and the calls delay the two checks (docs/correctness.md, S4).
_EVENT_SECONDS = 5
_ENDED = ENDED_STATES | {*CLOSED_STATUSES}


def executions_of(process: Process) -> dict[str, Holder]:
    """The holders of a process that are executions: all but its leases."""
    return {name: holder for name, holder in process.holders.items() if not holder.is_lease}


def target_of(process: Process, holder: Holder) -> str:
    """The target of a holder. A reservation has no target yet: its workflow copies the process's own."""
    return holder.target or process.target


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


def grace_seconds(parameters: Mapping[str, str]) -> int:
    """The stack's GraceSeconds: after this time the janitor checks the slot of an execution that has ended."""
    return int(parameters.get("GraceSeconds") or 120)


def check_gap_seconds(parameters: Mapping[str, str]) -> int:
    """The stack's CheckGapSeconds, between two checks of a holder's work."""
    return int(parameters.get("CheckGapSeconds") or 30)


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
        target: the job or state machine that it ran.
        work: its Glue run or child execution with its `state`; None if it has none.
        settle_seconds: those of the holder.
    """
    checks = 2 * check_gap_seconds(parameters)
    kind = kind_of(target)
    if kind.is_final and work is not None:
        checks = settle_seconds
    usual, noun = checks + _EVENT_SECONDS, kind.work_noun
    rate = _RATE.fullmatch(parameters.get("JanitorSchedule") or "rate(1 minute)")
    if rate is None:
        return SlotRelease(None, usual, noun)
    runs = 2 if work is None or work["state"] in _ENDED else 3
    grace, period = grace_seconds(parameters), int(rate[1]) * _UNITS[rate[2]]
    return SlotRelease(ended_at + grace + settle_seconds + runs * period, usual, noun)


def holder_as_dict(name: str, holder: Holder, request_id: str | None, now: float) -> dict[str, Any]:
    """A holder as JSON shows it. `execution` is also the name of a lease."""
    data = {
        "execution": name,
        "request_id": request_id,
        "state": holder.state,
        "key": holder.key or None,
        "weight": holder.weight,
        "since": iso(holder.since),
        "age_seconds": int(now - holder.since),
    }
    return data if holder.until is None else data | lease_as_dict(holder.until, now)


def lease_as_dict(until: int, now: float) -> dict[str, Any]:
    """The end of a lease as JSON shows it. `seconds_left` is negative after the end."""
    return {"until": iso(until), "seconds_left": int(until - now)}


def lease_text(lease: Mapping[str, Any]) -> str:
    """The end of a lease of `lease_as_dict` as text: `ends in 45 s`, `expired 5 s ago`."""
    left = lease["seconds_left"]
    return f"expired {duration(-left)} ago" if left < 0 else f"ends in {duration(left)}"


def is_dead(holder: Mapping[str, Any]) -> bool:
    """Whether a lease has expired, or an execution has ended or does not exist, from the holder's JSON.

    False if the execution was not read.
    """
    if holder["state"] == "LEASED":
        return bool(holder["seconds_left"] < -CLOCK_SKEW_SECONDS)
    status = holder.get("execution_status")
    return status in CLOSED_STATUSES or (status == "" and holder["state"] != "RESERVED")


def holders_text(weights: Sequence[int]) -> str:
    """The holders with these weights: `2 holders`, or `2 holders of weight 7`."""
    total = sum(weights)
    return count(len(weights), "holder") + f" of weight {total:,}" * (total != len(weights))


def weight_text(weight: int) -> str:
    """A weight to be appended: `, weight 5`, or empty for 1."""
    return f", weight {weight:,}" * (weight != 1)


def in_use_text(process: Mapping[str, Any]) -> str:
    """How much of a limit is in use, from the process's JSON: `2 of 3 slots in use`, `5 of 6 in use by 2 holders`."""
    in_use, limit = process["slots_in_use"], process["slot_limit"]
    weights = [holder["weight"] for holder in process["holders"]]
    if process["default_weight"] == 1 and set(weights) <= {1}:
        return f"{in_use} of {limit} slots in use"
    default = f", default weight {process['default_weight']:,}" * (process["default_weight"] != 1)
    return f"{in_use:,} of {limit:,} in use by {count(len(weights), 'holder')}{default}"
