"""The options --since and --until of commands that read a period."""

from __future__ import annotations

from datetime import datetime

import typer

from slotkeeper_cli.formatting import iso, local_moments, period_seconds

SINCE = "Begin: 90m, 24h or 7d ago, or a time in ISO 8601"
UNTIL = "End, in the same form; by default now."


def period(since: str, until: str, now: float) -> tuple[float, float]:
    """The begin and the end of a period, in seconds since the epoch. Raises typer.BadParameter."""
    start, end = _moment("--since", since, now), _moment("--until", until, now)
    if start >= end:
        raise typer.BadParameter(f"--since ({iso(start)}) must be before --until ({iso(end)})")
    return start, end


def _moment(option: str, text: str, now: float) -> float:
    """A time in seconds since the epoch. A time without zone is in that of this machine.

    Of a time that its clock shows twice, --since takes the first, and --until the second.
    """
    if (ago := period_seconds(text)) is not None:
        return now - ago
    try:
        stated = datetime.fromisoformat(text.strip())
        moments = [stated.timestamp()] if stated.tzinfo else local_moments(stated)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{option}: expected 90m, 24h or 7d, or a time such as 2026-11-22T14:05 or 2026-11-22T14:05:00Z, "
            f"got {text!r}"
        ) from None
    past = [each for each in moments if each <= now]
    if not past:
        raise typer.BadParameter(f"{option} ({iso(moments[0])}) is in the future: it is {iso(now)}")
    return past[0] if option == "--since" else past[-1]
