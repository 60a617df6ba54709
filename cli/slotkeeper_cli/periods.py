"""Options with a time: --since and --until of commands that read a period, and --start-before.

A time without a zone is in that of this machine.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

import typer

from slotkeeper_cli.formatting import local_moments, local_time, period_seconds

SINCE = "Begin: 90m, 24h or 7d ago, or a time in ISO 8601, without a zone in the local one"
UNTIL = "End, in the same form; by default now."
START_BEFORE = "HH:MM, or a date and a time in ISO 8601; without a zone in the local one"
# As request.schema.json accepts it.
_WITH_ZONE = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)")
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


def period(since: str, until: str, now: float) -> tuple[float, float]:
    """The begin and the end of a period, in seconds since the epoch. Raises typer.BadParameter."""
    start, end = _moment("--since", since, now), _moment("--until", until, now)
    if start >= end:
        raise typer.BadParameter(f"--since ({local_time(start)}) must be before --until ({local_time(end)})")
    return start, end


def _moment(option: str, text: str, now: float) -> float:
    """A time in seconds since the epoch. Of one that the local clock shows twice, --since takes the first."""
    if (ago := period_seconds(text)) is not None:
        return now - ago
    try:
        moments = _moments(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{option}: expected 90m, 24h or 7d, or a time such as 2026-11-22T14:05 or 2026-11-22T14:05:00Z, "
            f"got {text!r}"
        ) from None
    past = [each for each in moments if each <= now]
    if not past:
        raise typer.BadParameter(f"{option} ({local_time(moments[0])}) is in the future: it is {local_time(now)}")
    return past[0] if option == "--since" else past[-1]


def _moments(text: str) -> list[float]:
    """When it is a time in ISO 8601, in seconds since the epoch. Raises ValueError."""
    stated = datetime.fromisoformat(text.strip())
    return [stated.timestamp()] if stated.tzinfo else local_moments(stated)


def start_time(text: str, now: float) -> str:
    """A `start_before` as a request has it: of a time of day such as `08:00`, the next one.

    Raises:
        typer.BadParameter: it is no time, or has passed.
    """
    wrong = typer.BadParameter(f"--start-before: expected {START_BEFORE}, got {text!r}")
    try:
        if _TIME_OF_DAY.fullmatch(text):
            today, wanted = datetime.fromtimestamp(now).date(), time.fromisoformat(text)
            days = (datetime.combine(today + timedelta(each), wanted) for each in (0, 1))
            moments = [each for day in days for each in local_moments(day)]
        else:
            moments = _moments(text)
    except (ValueError, OverflowError):
        raise wrong from None
    coming = next((each for each in moments if each > now), None)
    if coming is None:
        raise typer.BadParameter(f"--start-before: {local_time(moments[-1])} has passed; it is {local_time(now)}")
    # Unchanged, if it can be: the same request has the same text, also in a file.
    stated = text if _WITH_ZONE.fullmatch(text) else datetime.fromtimestamp(coming).astimezone().isoformat()
    if not _WITH_ZONE.fullmatch(stated):
        raise wrong
    return stated
