"""The rate of a process: how many requests may start in a time, as "10/minute".

The item has the rate, and `next_start`: the time at which the next start is due if each comes as late as the rate
allows. It is the generic cell rate algorithm (GCRA): a start is admitted from `next_start - (burst - 1) x interval` on,
and moves `next_start` to one interval after itself, or after `next_start` if that is later. The interval is the time
divided by the count. A condition cannot add, so the caller computes both from a read, and the write requires that
neither the rate nor `next_start` has changed since.

So at most `burst + t x count / seconds` slots are granted in any t seconds. To t is added by how much the clocks of two
callers differ (CLOCK_SKEW_SECONDS at most), and for how long the first of them had read its clock before its write took
effect. docs/correctness.md has the proof (S11). A start is a grant: one that is cancelled later has used its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, number

if TYPE_CHECKING:
    from slotkeeper.slots.process import Process

UNITS: Mapping[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
# The interval is a whole number of milliseconds.
MAX_PER_SECOND = 1000
LAST_SECOND = 253_402_300_799  # of the year 9999, the last of Python's dates, as which the commands show a time

NO_RATE = "attribute_not_exists(rate)"
SAME_START = "rate = :rate AND next_start = :seen_start"
START_UPDATE = ", next_start = :next_start"


@dataclass(frozen=True)
class Rate:
    """At most `count` starts in `seconds`, of which `burst` may follow each other immediately."""

    count: int
    seconds: int
    burst: int = 1

    def __str__(self) -> str:
        unit = next((name for name, seconds in UNITS.items() if seconds == self.seconds), f"{self.seconds} s")
        return f"{self.count}/{unit}" + (f", burst {self.burst}" if self.burst > 1 else "")

    @property
    def interval(self) -> int:
        """Milliseconds from a start to the next, rounded up so that no more start than the rate allows."""
        return -(-1000 * self.seconds // self.count)

    @property
    def lead(self) -> int:
        """Milliseconds by which a start may come before `next_start`."""
        return (self.burst - 1) * self.interval

    @property
    def item(self) -> Item:
        """The attribute, in DynamoDB's format."""
        values = {"count": self.count, "seconds": self.seconds, "burst": self.burst}
        return {"M": {name: number(value) for name, value in values.items()}}


def check_rate(rate: Rate) -> Rate:
    """Return the rate. Raises ValueError, with the rule that it breaks, if a number is not valid."""
    for name in ("count", "seconds", "burst"):
        value = getattr(rate, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"must have a whole number above 0 as {name}, got {value!r}")
    if rate.seconds > max(UNITS.values()):
        raise ValueError(f"must have at most {max(UNITS.values())} seconds, got {rate.seconds}")
    if rate.count > MAX_PER_SECOND * rate.seconds:
        raise ValueError(f"must be at most {MAX_PER_SECOND} starts a second, got {rate.count} in {rate.seconds} s")
    if rate.burst > rate.count:
        raise ValueError(f"must have a burst of at most its count, {rate.count}, got {rate.burst}")
    return rate


def read_rate(attributes: Attributes) -> tuple[Rate | None, int]:
    """Parse the rate and `next_start`, in milliseconds since the epoch, of an item. Raises MalformedAttribute."""
    if "rate" not in attributes.raw:
        return None, 0
    return attributes.parsed_map("rate", _read), attributes.parsed_number("next_start", instant)


def _read(entry: Attributes) -> Rate:
    # The write compares the whole map.
    if unknown := entry.raw.keys() - {"count", "seconds", "burst"}:
        raise ValueError(f"must have count, seconds and burst alone, got {', '.join(sorted(unknown))}")
    return check_rate(Rate(entry.whole("count"), entry.whole("seconds"), entry.whole("burst")))


def instant(number: str) -> int:
    """Parse a time in milliseconds since the epoch. Raises ValueError."""
    at = int(number)
    if not 0 <= at <= LAST_SECOND * 1000:
        raise ValueError
    return at


def milliseconds(now: float) -> int:
    """A time in whole milliseconds since the epoch. Rounded, because a time that is due must not be one too early."""
    return int(round(now * 1000, 3))


def start(seen: Process, now: float) -> tuple[str, str, Item]:
    """The parts that the write of a lease adds for the rate: to the update, to the condition, and to its values."""
    if seen.rate is None:
        return "", NO_RATE, {}
    after = after_start(seen.rate, seen.next_start, now)
    return START_UPDATE, SAME_START, {**as_seen(seen.rate, seen.next_start), ":next_start": number(after)}


def after_start(rate: Rate, next_start: int, now: float) -> int:
    """`next_start` after a start now."""
    return max(milliseconds(now), next_start) + rate.interval


def as_seen(rate: Rate, next_start: int) -> dict[str, Any]:
    """The values of SAME_START."""
    return {":rate": rate.item, ":seen_start": number(next_start)}
