"""Decides about a failed attempt: retry at a time, or dead-letter. A pure function.

It uses no clock and no random numbers. So after a crash between deciding and recording, a second decision is the same.
A request is dead-lettered for the first of these reasons that applies:

    Poison             no attempt can ever succeed
    AttemptsExhausted  the failed attempt counts, and the number of counted attempts has reached max_attempts of the
                       rule for *this* failure. The earlier failures may be of other types: the rule of the last failure
                       applies to the whole request. Or MAX_TOTAL_ATTEMPTS attempts were made, counted or not
    TooOld             the next attempt would start later than max_age after the first

A failure that does not count never exhausts max_attempts. This holds also for a redriven request that has no attempts
left: a rate limit must not use up the one attempt that the operator's redrive has added. max_age still applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from slotkeeper.retry.errors import Failure
from slotkeeper.retry.policy import MAX_ATTEMPTS, Policy

# The maximum of counted and uncounted attempts. Without it, a downstream that always sends Retry-After 0 would cause
# retries without a pause for all of max_age. The body contains the start of each attempt, 27 bytes: 500 are 13.5 KB,
# which fit into a dead-letter message with the largest body of WorkQueue.
MAX_TOTAL_ATTEMPTS = 5 * MAX_ATTEMPTS


@dataclass(frozen=True)
class AttemptHistory:
    """The attempts of a request.

    Args:
        key: the request's id, from which jitter is computed.
        attempts: when each attempt started, seconds since the epoch. The last is the one that has just failed.
        uncounted: how many of those before it did not count.
    """

    key: str
    attempts: tuple[float, ...]
    uncounted: int = 0


@dataclass(frozen=True)
class RetryAt:
    """The next attempt starts at `when`, seconds since the epoch. `counted`: whether the failed attempt counts."""

    when: float
    counted: bool


@dataclass(frozen=True)
class DeadLetter:
    """The request is dead-lettered. `reason` is for people: the last error, and the limit that was reached."""

    code: str
    reason: str


def plan_retry(error: Failure, history: AttemptHistory, policy: Policy, now: float) -> RetryAt | DeadLetter:
    """Decide whether and when a request is retried after `error`.

    `when` is never before `now` and never later than `now` + max_age. A downstream's Retry-After replaces the policy's
    wait, shorter or longer. A negative value means now; a value that is not a number is ignored.

    Args:
        now: seconds since the epoch.
    """
    if error.final:
        return DeadLetter("Poison", error.reason)
    rule = policy.rule_for(error.types)
    made = len(history.attempts)
    counts = rule.counts and error.counts
    counted = made - history.uncounted - (not counts)
    if counts and counted >= rule.max_attempts:
        uncounted = f" ({made - counted} more do not count)" if made > counted else ""
        reason = f"{counted} attempts have failed, and the policy allows {rule.max_attempts}{uncounted}"
        return DeadLetter("AttemptsExhausted", f"{reason}; the last error: {error.reason}")
    if made >= MAX_TOTAL_ATTEMPTS:
        reason = f"{made} attempts were made, of which {counted} count; no policy allows more than {MAX_TOTAL_ATTEMPTS}"
        return DeadLetter("AttemptsExhausted", f"{reason}; the last error: {error.reason}")
    requested = _seconds(error.retry_after)
    delay = rule.delay(history.key, made) if requested is None else requested
    # A start in the future comes from a wrong clock. With it as the first start, the request would outlive its row.
    first = min(now, *history.attempts)
    age = now + delay - first
    if age > rule.max_age:
        wait = "by the downstream's Retry-After" if requested is not None else "by the policy"
        reason = (
            f"attempt {made + 1} would start {age:.0f} s after the first ({delay:.0f} s from now, {wait}), and the "
            f"policy allows {rule.max_age:.0f} s"
        )
        return DeadLetter("TooOld", f"{reason}; the last error: {error.reason}")
    return RetryAt(now + delay, counts)


def _seconds(retry_after: Any) -> float | None:
    """Convert a Retry-After to seconds; None if it is not a number. The work passes it unvalidated."""
    try:
        seconds = float(retry_after)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
