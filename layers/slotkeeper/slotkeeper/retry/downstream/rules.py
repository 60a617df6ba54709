"""The rules by which attempts begin, and by which their outcomes change the state of the downstream.

Pure functions of the state and a time. downstreams.py stores the state, and makes each change in one conditional write.

    CLOSED      attempts begin, up to the concurrency limit and, for retries, the budget
    OPEN        no attempt begins until the probe is due, or, if an operator opened it, until an operator closes it
    HALF_OPEN   one attempt, the probe, is under way. Success closes; failure opens again, and so does the end of its
                lease without an outcome

    CLOSED -> OPEN        `failure_threshold` of the last `window_calls` calls failed, or an operator
    OPEN -> HALF_OPEN     the probe begins
    HALF_OPEN -> CLOSED   the probe succeeds; the concurrency limit is the one before the breaker opened
    HALF_OPEN -> OPEN     the probe fails, or proves nothing (then the next probe is due immediately)

The first probe comes early, and after each failed one the wait doubles, up to `recovery`. So a fault of seconds stops
the work for seconds, and an outage of minutes costs few calls.

Each change of the state begins a new *epoch*. The outcome of an attempt that began in an earlier epoch changes nothing:
it is about a downstream of the past.

A permit that ends without an outcome is a failure: the downstream may have kept the call until the function was
stopped.

A throttled answer halves the limit, or, if the limit was being raised, takes it back to the last one that a window has
proven. After a window in full use without throttling the limit grows: half of the way to the one below the last
throttled limit, there it stays for HOLD_WINDOWS before that limit is tried again, and above it, it grows by half.

With "add one, halve" alone, the mean limit would be three quarters of what the downstream takes: between two throttled
answers the limit grows from half to all of it. With the last throttled limit remembered (as TCP's BIC and CUBIC do), it
stays just below it nearly all the time, and it follows a larger capacity in a logarithmic number of windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from slotkeeper.retry.downstream.health import (
    CLOCK_SKEW_SECONDS,
    FAILURE,
    SUCCESS,
    Answer,
    Change,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.policy import share

MAX_CHANGES = 20  # DynamoDB charges each write by the size of the whole item
# The weight of a call's duration in the mean duration.
NEW_SECONDS_WEIGHT = 0.2

# With fewer messages per second, a second could pass after the recovery without a message that could be the probe.
MIN_PER_SECOND = 2.0
# The wait for the first probe, as a share of the recovery time.
FIRST_PROBE = 1 / 32
# The waits for probes are shorter by up to this share, so that probes do not keep step with a regular fault.
PROBE_JITTER = 0.2
# Messages that return per permitted attempt. With one, every permit would be unused until the next message returns.
RETURNS_PER_PERMIT = 4
# Windows at one below the last throttled limit. Fewer, and more calls are throttled; more, and a larger capacity is
# found later.
HOLD_WINDOWS = 3


class Limit(NamedTuple):
    """A concurrency limit and what is known about others.

    Args:
        callers: the permitted callers.
        proven: the last limit with a window in full use without throttling; 0 if unknown.
        throttled: the last limit that was too high; 0 if unknown.
        calm: such windows since `callers` or `throttled` changed.
    """

    callers: int
    proven: int = 0
    throttled: int = 0
    calm: int = 0


def ask(
    health: Health,
    settings: DownstreamSettings,
    permit: Permit,
    most: int,
    now: float,
) -> tuple[Health, Permit | Refusal]:
    """Decide whether an attempt may begin; return the state to store, too.

    A refusal changes nothing, unless permits that have ended open the breaker.

    Args:
        permit: `code`, `until` and `is_retry` of the attempt.
        most: the event source's concurrency.
        now: seconds since the epoch.
    """
    after, answer = _asked(health, settings, permit, most, now)
    if isinstance(answer, Refusal) and after.epoch == health.epoch:
        return health, answer
    return after, answer


def _asked(
    health: Health, settings: DownstreamSettings, permit: Permit, most: int, now: float
) -> tuple[Health, Permit | Refusal]:
    health = current(health, settings, most, now)
    breaker, budget = settings.breaker, settings.budget
    if health.forced:
        return health, Refusal("breaker", now + breaker.recovery, _returns(health, settings, most))
    if health.state != State.CLOSED and not breaker.enabled:
        health = _closed(health, now, "the policy disables the breaker", healthy=False)
    is_written = permit.code in health.permits  # by this call's own earlier write, whose answer was lost
    if health.state == State.HALF_OPEN:
        if is_written and health.probe_at == permit.until:
            return _permitted(health, permit)
        # The probe is under way for an unknown time: messages come back when it has been so for twice as long.
        so_far = min(max(0.0, now - health.since), breaker.recovery)
        return health, Refusal("breaker", now + so_far, _returns(health, settings, most))
    if health.state == State.OPEN:
        due = health.probe_due(settings, now)
        if now < due:
            return health, Refusal("breaker", due, _returns(health, settings, most))
        health = replace(health, state=State.HALF_OPEN, epoch=health.epoch + 1, since=now, probe_at=permit.until)
        return _permitted(health, permit)
    if is_written:
        return _permitted(health, permit)
    callers = health.callers(settings, most)
    if callers is not None and len(health.permits) >= callers:
        return health, Refusal("concurrency", now, _returns(health, settings, most))
    allowed = health.allowed_retries(settings)
    if permit.is_retry and allowed is not None and allowed < 1:
        per_second = budget.capacity / budget.window  # by time alone; a success may come earlier
        return health, Refusal("budget", now + (1 - allowed) / per_second, max(MIN_PER_SECOND, per_second))
    health, granted = _permitted(health, permit)
    # Without a limit nothing asks for the permits, and with breaker alone a permit costs no write.
    return (health, granted) if callers is not None else (replace(health, permits={}), granted)


def report(
    health: Health,
    settings: DownstreamSettings,
    permit: Permit,
    answer: Answer,
    seconds: float,
    most: int,
    now: float,
) -> tuple[Health, bool]:
    """Return the state after an attempt's outcome, and whether a failure may count as one of the request's attempts.

    A failure counts only if the downstream's answer before it was a success, and no state has changed since the attempt
    began. Otherwise the downstream may be down, and an outage would use up the attempts of requests that it accepts
    afterwards.

    Args:
        seconds: the duration of the call.
    """
    health = current(health, settings, most, now)
    under_way = len(health.permits)
    health = replace(health, permits=_without(health.permits, permit.code))
    if permit.epoch != health.epoch:
        return health, not settings.breaker.enabled
    counts = not settings.breaker.enabled or (health.healthy and health.state == State.CLOSED)
    if health.state == State.HALF_OPEN:
        return _probed(health, settings, answer, now), counts
    slow = settings.concurrency.slow
    callers = health.callers(settings, most)
    if answer == Answer.THROTTLED or (answer == Answer.SUCCEEDED and slow is not None and seconds > slow):
        if callers == 1 and answer == Answer.THROTTLED:
            answer = Answer.FAILED  # it cannot be called less without not being called
            health = replace(health, cut=health.window)
        elif callers is not None and health.limit_set is None and permit.window > health.cut:
            health = replace(_limited(health, reduced(_limit(health, most))), cut=health.window)
    elif answer == Answer.SUCCEEDED and health.limit_set is None and callers is not None and under_way >= callers:
        health = replace(health, clean=True)
    if answer == Answer.SUCCEEDED:
        return _succeeded(health, settings, seconds, now), counts
    if answer != Answer.FAILED:
        return health, counts
    if settings.budget.enabled and permit.is_retry:
        refilled = health.refilled if health.spent else now
        health = replace(health, spent=min(settings.budget.capacity, health.spent + 1), refilled=refilled)
    return _failed(health, settings, now), counts


def give_back(health: Health, permit: Permit, now: float) -> Health:
    """Return the state after a permit that was not used: another delivery had the attempt."""
    health = replace(health, permits=_without(health.permits, permit.code))
    if permit.epoch != health.epoch:
        return health
    if health.state == State.HALF_OPEN:
        return _reopened(health, now, now)
    return health


def force_open(health: Health, now: float, why: str, by: str = "") -> Health:
    """Open the breaker until an operator closes it."""
    return replace(_opened(health, 0.0, now, why, by), forced=True)


def force_closed(health: Health, now: float, why: str, by: str = "") -> Health:
    """Close the breaker. It opens again by its own rules."""
    # No probe has shown what the downstream takes now, so the limit starts at one.
    return _limited(_closed(health, now, why, by, healthy=False), Limit(1))


def set_limit(health: Health, limit: int | None) -> Health:
    """Set the operator's concurrency limit; None removes it."""
    return replace(health, limit_set=limit)


def current(health: Health, settings: DownstreamSettings, most: int, now: float) -> Health:
    """End windows and permits whose time has passed, and windows that a clock which was ahead has begun."""
    for until, code in sorted((until, code) for code, (until, _) in health.permits.items() if until <= now):
        epoch = health.permits[code][1]
        health = replace(health, permits=_without(health.permits, code))
        if epoch == health.epoch and health.state == State.CLOSED:
            health = _failed(health, settings, until)
    if health.state == State.HALF_OPEN and now >= health.probe_at:
        health = _probed(health, settings, Answer.FAILED, health.probe_at)
    concurrency, budget = settings.concurrency, settings.budget
    if concurrency.enabled and _is_ahead(health.window, now):
        health = replace(health, window=now, cut=-1.0, clean=False)
    if concurrency.enabled and now >= health.window + concurrency.window:
        limit = _limit(health, most)
        if health.clean and health.cut < health.window:
            limit = grown(limit, most)
        health = replace(_limited(health, limit), window=now, clean=False)
    if budget.enabled and health.spent:
        spent = health.spent - max(0.0, now - health.refilled) * budget.capacity / budget.window
        refilled = now if _is_ahead(health.refilled, now) else max(now, health.refilled)
        health = replace(health, spent=max(0.0, spent), refilled=refilled)
    return health


def _is_ahead(at: float, now: float) -> bool:
    """Whether a time was written by a container whose clock was ahead of the others."""
    return at > now + CLOCK_SKEW_SECONDS


def _returns(health: Health, settings: DownstreamSettings, most: int) -> float:
    """How many held-back messages return per second. While the breaker is open, the limit is the one before."""
    callers = health.callers(settings, most)
    return max(MIN_PER_SECOND, RETURNS_PER_PERMIT * (most if callers is None else callers) / (health.seconds or 1.0))


def _limit(health: Health, most: int) -> Limit:
    return Limit(min(health.limit or most, most), health.proven, health.throttled, health.calm)


def _limited(health: Health, limit: Limit) -> Health:
    callers, proven, throttled, calm = limit
    return replace(health, limit=callers, proven=proven, throttled=throttled, calm=calm)


def _permitted(health: Health, permit: Permit) -> tuple[Health, Permit]:
    granted = replace(permit, epoch=health.epoch, window=health.window)
    return replace(health, permits={**health.permits, permit.code: (permit.until, health.epoch)}), granted


def _succeeded(health: Health, settings: DownstreamSettings, seconds: float, now: float) -> Health:
    mean = health.seconds + NEW_SECONDS_WEIGHT * (seconds - health.seconds) if health.seconds else seconds
    return replace(
        health,
        outcomes=_recent(health, settings, SUCCESS),
        healthy=health.healthy or now - seconds >= health.failed_at,
        seconds=_measured(settings, mean),
        spent=max(0.0, health.spent - settings.budget.percent / 100) if settings.budget.enabled else health.spent,
    )


def _failed(health: Health, settings: DownstreamSettings, now: float) -> Health:
    breaker = settings.breaker
    failed_at = now if health.healthy else health.failed_at
    outcomes = _recent(health, settings, FAILURE)
    health = replace(health, outcomes=outcomes, healthy=False, failed_at=failed_at)
    if not breaker.enabled or health.failures < breaker.failure_threshold:
        return health
    why = f"{health.failures} of the last {breaker.considered} calls failed"
    return _opened(health, now + _probe_wait(health, settings, now), now, why)


def _recent(health: Health, settings: DownstreamSettings, outcome: str) -> str:
    """The last outcomes from the first failure on. So without failures it is constant, and nothing is written."""
    return (health.outcomes + outcome)[-settings.breaker.considered :].lstrip(SUCCESS)


def _probe_wait(health: Health, settings: DownstreamSettings, now: float) -> float:
    """The seconds to the next probe. The jitter is computed from the time, so that the rules stay pure."""
    wait = min(1.0, FIRST_PROBE * 2.0 ** min(health.failed_probes, 100)) * settings.breaker.recovery
    return wait * (1 - PROBE_JITTER * share(repr(now), health.failed_probes))


def _probed(health: Health, settings: DownstreamSettings, answer: Answer, now: float) -> Health:
    match answer:
        case Answer.SUCCEEDED:
            return _closed(health, now, "the probe succeeded", healthy=True)
        case Answer.UNKNOWN:
            return _reopened(health, now, now)
        case _:
            health = replace(health, failed_probes=health.failed_probes + 1)
            return _reopened(health, now + _probe_wait(health, settings, now), now)


def _reopened(health: Health, probe_at: float, now: float) -> Health:
    return replace(health, state=State.OPEN, epoch=health.epoch + 1, since=now, probe_at=probe_at)


def _opened(health: Health, probe_at: float, now: float, why: str, by: str = "") -> Health:
    change = Change(now, State.OPEN, why, by)
    return replace(
        health,
        state=State.OPEN,
        epoch=health.epoch + 1,
        since=now,
        probe_at=probe_at,
        changes=(*health.changes, change)[-MAX_CHANGES:],
    )


def _closed(health: Health, now: float, why: str, by: str = "", *, healthy: bool) -> Health:
    change = Change(now, State.CLOSED, why, by)
    return replace(
        health,
        state=State.CLOSED,
        epoch=health.epoch + 1,
        since=now,
        forced=False,
        outcomes="",
        failed_probes=0,
        healthy=healthy,
        window=now,
        clean=False,
        changes=(*health.changes, change)[-MAX_CHANGES:],
    )


def _measured(settings: DownstreamSettings, mean: float) -> float:
    """The mean duration, which only the concurrency limit needs; constant without it, so that nothing is written."""
    return round(mean, 3) if settings.concurrency.enabled else 0.0


def _without(permits: Mapping[str, tuple[float, int]], code: str) -> dict[str, tuple[float, int]]:
    return {other: held for other, held in permits.items() if other != code}


def reduced(limit: Limit) -> Limit:
    """Return the limit after a throttled answer."""
    callers = limit.proven if 0 < limit.proven < limit.callers else max(1, limit.callers // 2)
    return Limit(callers, callers, limit.callers)


def grown(limit: Limit, most: int) -> Limit:
    """Return the limit after a window in full use without throttling. `most`: the maximum."""
    callers, _, throttled, calm = limit
    if callers >= throttled:  # also if none is known
        raised, throttled = callers + max(1, callers // 2), 0
    elif callers < throttled - 1:
        raised = (callers + throttled) // 2
    else:
        raised = throttled if calm + 1 >= HOLD_WINDOWS else callers
    raised = min(raised, most)
    return Limit(raised, callers, throttled, 0 if raised != callers else calm + 1)
