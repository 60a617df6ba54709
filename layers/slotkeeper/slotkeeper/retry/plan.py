"""What becomes of a request whose attempt has failed: tried again at a time, or a dead letter. Values in, values out.

No clock, no chance: whoever asks the same question again, after a crash between deciding and recording, gets the same
answer. What ends a request, in this order:

    Poison             no attempt can ever succeed
    AttemptsExhausted  the failed attempt counts, and with it as many do as max_attempts of the rule for *this* failure
                       says, whatever the earlier ones failed of: where errors alternate, the rule of the last one is
                       asked, and asked about the whole request. Or MAX_TOTAL_ATTEMPTS were made, counted or not
    TooOld             the next attempt would begin later than max_age after the first

A failure that does not count therefore never uses up max_attempts, not even for a redriven dead letter, which has none
left: being told to come later must not take away the one attempt that the operator has just given. Age still may.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from slotkeeper.retry.errors import Failure
from slotkeeper.retry.policy import MAX_ATTEMPTS, Policy

# However few of them count: else a downstream that always says Retry-After 0 would keep a message going, without a
# pause, for all of max_age. Every start travels in the body, with 27 bytes: 500 are 13.5 KB, for which a dead letter
# has room beside the largest message of WorkQueue.
MAX_TOTAL_ATTEMPTS = 5 * MAX_ATTEMPTS


@dataclass(frozen=True)
class AttemptHistory:
    """The attempts of a request.

    Args:
        key: the request's id; what jitter is reckoned from.
        attempts: when each of them began, seconds since the epoch; the last is the one that has just failed.
        uncounted: how many of those before it did not count.

    Raises:
        ValueError: with the field, its value and what was expected.
    """

    key: str
    attempts: tuple[float, ...]
    uncounted: int = 0

    def __post_init__(self) -> None:
        if not self.attempts or not all(isfinite(started_at) for started_at in self.attempts):
            raise ValueError(
                f"AttemptHistory.attempts must be seconds since the epoch, at least those of the failed attempt, got "
                f"{self.attempts!r}"
            )
        if not 0 <= self.uncounted < len(self.attempts):
            raise ValueError(
                f"AttemptHistory.uncounted must be from 0 to {len(self.attempts) - 1}, the number of attempts before "
                f"the failed one, got {self.uncounted!r}"
            )


@dataclass(frozen=True)
class RetryAt:
    """The next attempt begins at `when`, seconds since the epoch. `counted` says whether the failed one counts."""

    when: float
    counted: bool


@dataclass(frozen=True)
class DeadLetter:
    """The request is set aside. `reason` is for people: what failed, and which bound was reached."""

    code: str
    reason: str


def plan_retry(error: Failure, history: AttemptHistory, policy: Policy, now: float) -> RetryAt | DeadLetter:
    """What becomes of a request whose last attempt ended so.

    `when` is never before `now` and never later than `now` + max_age. A downstream's Retry-After takes the place of the
    policy's wait, shorter or longer; below zero it means now, and what is no number of seconds is ignored.

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
        beside = f" ({made - counted} more do not count)" if made > counted else ""
        reason = f"{counted} attempts have failed, and the policy allows {rule.max_attempts}{beside}"
        return DeadLetter("AttemptsExhausted", f"{reason}; the last error: {error.reason}")
    if made >= MAX_TOTAL_ATTEMPTS:
        reason = f"{made} attempts were made, of which {counted} count; no policy allows more than {MAX_TOTAL_ATTEMPTS}"
        return DeadLetter("AttemptsExhausted", f"{reason}; the last error: {error.reason}")
    asked = _seconds(error.retry_after)
    delay = rule.delay(history.key, made) if asked is None else asked
    # The clock that told a start in the future was wrong. Counted from there, the request would outlive its ledger row.
    first = min(now, *history.attempts)
    age = now + delay - first
    if age > rule.max_age:
        wait = "as the downstream asked" if asked is not None else "by the policy"
        reason = (
            f"attempt {made + 1} would begin {age:.0f} s after the first ({delay:.0f} s from now, {wait}), and "
            f"{rule.max_age:.0f} s are allowed"
        )
        return DeadLetter("TooOld", f"{reason}; the last error: {error.reason}")
    return RetryAt(now + delay, counts)


def _seconds(retry_after: Any) -> float | None:
    """A downstream's word, or somebody's reading of it: it may be anything."""
    try:
        seconds = float(retry_after)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
