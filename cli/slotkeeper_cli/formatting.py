"""Format times, durations, counts and long texts."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

_LAST_SECOND = 253_402_300_799  # of the year 9999, the last of Python's dates


def duration(seconds: float) -> str:
    """A duration in its two largest units: `45 s`, `3 min 20 s`, `3 d 4 h`; `0 s` if it is negative."""
    whole = max(0, int(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, whole = divmod(whole, size)
        if amount:
            parts.append(f"{amount} {unit}")
        elif parts:
            break  # only adjacent units: not "3 d 5 s"
    return " ".join(parts[:2]) or "0 s"


def utc(moment: float) -> datetime:
    """Seconds since the epoch as a date; a number that is none, as of a row with milliseconds, as the last one."""
    return datetime.fromtimestamp(min(max(moment, 0), _LAST_SECOND), UTC)


def iso(moment: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, in whole seconds."""
    return utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """The seconds since the epoch of a time in ISO 8601."""
    return datetime.fromisoformat(text).timestamp()


def period_seconds(text: str) -> float | None:
    """The seconds of a period such as `90m`, `24h` or `7d`; None for any other text."""
    match = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    return int(match[1]) * {"m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def local_time(moment: float) -> str:
    """Seconds since the epoch in the local time zone."""
    return _local(moment).strftime("%Y-%m-%d %H:%M:%S %Z")


def local_moments(shown: datetime) -> list[float]:
    """When the clock of the local time zone shows a time, in seconds since the epoch, in order.

    Two if the zone has that hour twice, at the end of daylight saving time. Of a time that it skips, at the beginning,
    the moment of the skip.
    """
    first, second = (shown.replace(fold=fold).timestamp() for fold in (0, 1))
    if first <= second:
        return sorted({first, second})
    # Of a skipped time, fold 0 is as long after the skip as fold 1 is before it (Python, datetime, `fold`).
    minutes = range(int(second) // 60 * 60, int(first) + 60, 60)
    return [float(next(each for each in minutes if _local(each).utcoffset() == _local(first).utcoffset()))]


def _local(moment: float) -> datetime:
    # A zone may be ahead of UTC, and Python also looks at the time a day later.
    return datetime.fromtimestamp(min(max(moment, 0), _LAST_SECOND - 2 * 86400)).astimezone()


def count(number: int, one: str, many: str = "") -> str:
    """`1 request`, `3 requests`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question with the most similar of the known words, after a space; empty if none is similar."""
    words = {each.casefold(): each for each in known}
    return "".join(f" Did you mean {words[each]!r}?" for each in get_close_matches(word.casefold(), words, 1))


def cut(text: str, width: int = 200) -> str:
    """A text on one line of at most `width` characters, cut in the middle.

    The ends of ids differ, and the cause in an error message is at its end as often as at its beginning.
    """
    whole = " ".join(text.split())
    if len(whole) <= width or width < 5:
        return whole[:width]
    return f"{whole[: (width - 3) // 2]}...{whole[-((width - 2) // 2) :]}"
