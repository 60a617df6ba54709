"""The ends, the arguments and the errors of leases. Pure functions: the times are arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from slotkeeper.slots.process import MAX_HOLDERS, PROCESS_NAME, Process
from slotkeeper.slots.request import MAX_WEIGHT
from slotkeeper.slots.reservation import LeaseTerm

# Seconds. A slot stays taken for as long after its holder has died. Extend a lease to hold it longer.
MAX_LEASE_SECONDS = 86_400
# Seconds before the end of an invocation at which waiting ends, so that the caller can still handle SlotUnavailable.
_SPARE_SECONDS = 1.0
_MOST_AGES = 10  # in a message


class LambdaContext(Protocol):
    """The part of Lambda's context object that a lease needs."""

    def get_remaining_time_in_millis(self) -> int: ...


class SlotUnavailable(RuntimeError):
    """No slot was free within `wait`. The block did not run. `seen`: the process as it was read last."""

    def __init__(self, message: str, seen: Process) -> None:
        super().__init__(message)
        self.seen = seen

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle passes the message alone. A pool of processes, which sends errors by pickle, would hang.
        return type(self), (str(self), self.seen), vars(self)


class SlotLost(RuntimeError):
    """The lease ended before its block, and its slot was freed or taken over. More blocks than the limit may run."""


class NestedLease(RuntimeError):
    """This thread or asyncio task already holds a lease of the process, and could wait for itself."""


@dataclass(frozen=True)
class Term:
    """A lease's end, by the time of day (seconds since the epoch) and by the monotonic clock, and its code."""

    end: float
    monotonic_end: float
    code: str

    @property
    def stored(self) -> LeaseTerm:
        """What the table contains: rounded up, since rounding must not let another caller remove the lease early."""
        return LeaseTerm(math.ceil(self.end), self.code)

    def remaining(self, clock: float, monotonic: float) -> float:
        """Return the seconds left at these times, 0.0 after the end.

        The monotonic clock is not affected by corrections. The time of day is an upper bound, because the monotonic
        clock does not count the time for which a machine was suspended (Python documentation, time.CLOCK_BOOTTIME).
        """
        return max(0.0, min(self.monotonic_end - monotonic, self.end - clock))


@dataclass(frozen=True)
class Length:
    """How long a lease is, and how long its caller waits for it, in seconds. `context`: see `lease`.

    Raises:
        ValueError: see `lease`.
    """

    context: LambdaContext | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.context is None and self.seconds is None:
            raise ValueError(
                "a lease needs an end: pass the context of the Lambda function, or seconds=. Nothing was taken"
            )
        if self.context is not None and not hasattr(self.context, "get_remaining_time_in_millis"):
            raise ValueError(
                f"context must be the object that Lambda passes to the handler, got {self.context!r}. For a length in "
                "seconds use seconds=. Nothing was taken"
            )
        if self.seconds is None:
            return
        if not _is_number(self.seconds) or not 0 < self.seconds <= MAX_LEASE_SECONDS:
            raise ValueError(
                f"seconds must be a number above 0 and up to {MAX_LEASE_SECONDS}, got {self.seconds!r}. Extend a "
                "lease to hold it longer"
            )
        if self.seconds > self.left:
            raise ValueError(
                f"a lease of {self.seconds:g} s is longer than the invocation, which ends in {self.left:.1f} s. Ask "
                "for less, or raise the function's timeout"
            )

    @property
    def left(self) -> float:
        """The seconds until Lambda stops the invocation, infinite without a context."""
        return math.inf if self.context is None else self.context.get_remaining_time_in_millis() / 1000

    def longest_wait(self, wait: float) -> float:
        """At most `wait`, and so that the invocation then still has the time that the block needs."""
        return min(wait, self.left - max(self.seconds or 0, _SPARE_SECONDS))

    def term(self, clock: float, monotonic: float, code: str) -> Term:
        """Return the end of a lease that begins at these times."""
        seconds = self.left if self.seconds is None else self.seconds
        return Term(clock + seconds, monotonic + seconds, code)


def check_arguments(process: str, wait: float, weight: int | None) -> None:
    """Raise ValueError if an argument of `lease` is not valid. The message states the valid values."""
    if not isinstance(process, str) or not PROCESS_NAME.fullmatch(process):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {process!r}")
    if not _is_number(wait) or not 0 <= wait < math.inf:
        raise ValueError(f"wait must be a finite number of seconds, 0 or more, got {wait!r}")
    is_whole = isinstance(weight, int) and not isinstance(weight, bool)
    if weight is not None and not (is_whole and 1 <= weight <= MAX_WEIGHT):
        raise ValueError(f"weight must be a whole number from 1 to {MAX_WEIGHT}, got {weight!r}")


def unavailable(weight: int | None, waited: float, seen: Process, now: float) -> SlotUnavailable:
    """Return the error for a process that refused a lease. `waited`: seconds; `now`: seconds since the epoch."""
    weighs = weight or seen.default_weight
    if weighs > seen.slot_limit:
        why = f"the lease's weight {weighs} is above the limit. An operator must raise the limit"
    elif seen.paused:
        why = "the process is paused. An operator must resume it"
    elif len(seen.holders) >= MAX_HOLDERS:
        why = f"a process can have {MAX_HOLDERS} holders"
    elif seen.first:
        why = "requests in the queue come first"
    else:
        why = "all slots are in use" if weighs == 1 else f"a lease of weight {weighs} does not fit"
    ages = sorted((max(0, int(now - holder.since)) for holder in seen.holders.values()), reverse=True)
    held = "no holder" if not ages else f"{len(ages)} holders, since " if len(ages) > 1 else "1 holder, since "
    held += ", ".join(f"{age} s" for age in ages[:_MOST_AGES]) + (", ..." if len(ages) > _MOST_AGES else "")
    after = f" within {waited:.0f} s" if waited >= 1 else ""
    return SlotUnavailable(
        f"no slot of {seen.name!r} was available{after}: {why}. Limit {seen.slot_limit}, in use {seen.slots_in_use} by "
        f"{held}. The block did not run. Try again, or wait longer with wait=",
        seen,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
