"""Estimates when the slot of an execution that has ended will be free."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slotkeeper_cli.formatting import local_time

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNITS = {"minute": 60, "hour": 3600, "day": 86400}


def free_by(parameters: Mapping[str, str], ended_at: float, has_live_run: bool) -> float | None:
    """The time by which the janitor's runs free the slot, in seconds since the epoch; with the status event earlier.

    The grace time and two runs after the end, which check Glue twice. A run before these stops a live Glue run, and
    Glue takes some time to stop it. Returns None if the janitor's schedule is not a rate.

    Args:
        parameters: those of the stack.
        ended_at: when the execution ended, in seconds since the epoch.
        has_live_run: its Glue run has not ended.
    """
    rate = _RATE.fullmatch(parameters.get("JanitorSchedule") or "rate(1 minute)")
    if rate is None:
        return None
    period = int(rate[1]) * _UNITS[rate[2]]
    return ended_at + int(parameters.get("GraceSeconds") or 120) + (3 if has_live_run else 2) * period


def free_by_text(moment: float | None, now: float) -> str:
    """The estimate as text, such as `by about 2026-11-22 14:05:30 CET, usually earlier`."""
    if moment is None:
        return "after GraceSeconds and the next two or three runs of the janitor"
    if now > moment:
        return f"by about {local_time(moment)}, which has passed: slotkeeper holder release frees it or shows why not"
    return f"by about {local_time(moment)}, usually earlier"
