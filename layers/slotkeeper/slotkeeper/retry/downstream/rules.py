"""The rules by which attempts begin, and by which their outcomes change the state of the downstream.

Pure functions of the state and a time. downstreams.py stores the state, and makes each change in one conditional write.

    CLOSED      attempts begin, up to the concurrency limit and, for retries, the budget
    OPEN        no attempt begins until the probe is due, or, if an operator opened it, until an operator closes it
    HALF_OPEN   one attempt, the probe, is under way. Success closes; failure opens again; if its container dies, the
                next probe may begin after the lease

    CLOSED -> OPEN        `failure_threshold` consecutive failures, or an operator
    OPEN -> HALF_OPEN     the probe begins
    HALF_OPEN -> CLOSED   the probe succeeds; the concurrency limit starts at one
    HALF_OPEN -> OPEN     the probe fails, or proves nothing (then the next probe is due immediately)

Each change of the state begins a new *epoch*. The outcome of an attempt that began in an earlier epoch changes nothing:
it is about a downstream of the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slotkeeper.retry.downstream import concurrency_limit
from slotkeeper.retry.downstream.concurrency_limit import Limit
from slotkeeper.retry.downstream.health import Answer, Change, Health, Permit, Refusal, State
from slotkeeper.retry.downstream.settings import DownstreamSettings

MAX_CHANGES = 20  # DynamoDB charges each write by the size of the whole item
# The weight of a call's duration in the mean duration.
NEW_SECONDS_WEIGHT = 0.2

# With fewer messages per second, a second could pass after the recovery without a message that could be the probe.
MIN_PER_SECOND = 2.0
# Messages that return per permitted attempt. With one, every permit would be unused until the next message returns.
RETURNS_PER_PERMIT = 4


def ask(
    health: Health,
    settings: DownstreamSettings,
    permit: Permit,
    most: int,
    now: float,
) -> tuple[Health, Permit | Refusal]:
    """Decide whether an attempt may begin; return the state after it, too.

    Args:
        permit: `code`, `until` and `is_retry` of the attempt.
        most: the event source's concurrency.
        now: seconds since the epoch.
    """
    health = current(health, settings, most, now)
    breaker, budget = settings.breaker, settings.budget
    if health.forced:
        return health, Refusal("breaker", now + breaker.recovery, _returns(health, settings, most))
    if health.state != State.CLOSED and not breaker.enabled:
        health = _closed(health, now, "the policy disables the breaker", healthy=False)
    is_written = permit.code in health.permits  # by this call's own earlier write, whose answer was lost
    if health.state != State.CLOSED:
        if is_written and health.state == State.HALF_OPEN and health.probe_at == permit.until:
            return _permitted(health, permit)
        if now < health.probe_at:
            # A probe is under way for an unknown time, so messages come back soon.
            due = health.probe_at if health.state == State.OPEN else now
            return health, Refusal("breaker", due, _returns(health, settings, most))
        health = replace(health, state=State.HALF_OPEN, epoch=health.epoch + 1, since=now, probe_at=permit.until)
        return _permitted(health, permit)
    if is_written:
        return _permitted(health, permit)
    callers = health.callers(settings, most)
    if callers is not None and len(health.permits) >= callers:
        return health, Refusal("concurrency", now, _returns(health, settings, most))
    allowed = health.allowed_retries(settings)
    if permit.is_retry and allowed is not None and health.retries >= allowed:
        due = health.budget_window + budget.window
        return health, Refusal("budget", due, max(MIN_PER_SECOND, RETURNS_PER_PERMIT * allowed / budget.window))
    if budget.enabled and not permit.is_retry:
        health = replace(health, first_attempts=health.first_attempts + 1)
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
            health = replace(_limited(health, concurrency_limit.reduced(_limit(health, most))), cut=health.window)
    elif answer == Answer.SUCCEEDED and health.limit_set is None and callers is not None and under_way >= callers:
        health = replace(health, clean=True)
    if answer == Answer.SUCCEEDED:
        mean = health.seconds + NEW_SECONDS_WEIGHT * (seconds - health.seconds) if health.seconds else seconds
        healthy = health.healthy or now - seconds >= health.failed_at
        return replace(health, failures=0, healthy=healthy, seconds=_measured(settings, mean)), counts
    if answer != Answer.FAILED:
        return health, counts
    failed_at = now if health.healthy else health.failed_at
    health = replace(health, failures=health.failures + 1, healthy=False, failed_at=failed_at)
    if settings.budget.enabled and permit.is_retry:
        health = replace(health, retries=health.retries + 1)
    if settings.breaker.enabled and health.failures >= settings.breaker.failure_threshold:
        health = _opened(health, now + settings.breaker.recovery, now, f"{health.failures} consecutive failures")
    return health, counts


def give_back(health: Health, permit: Permit, now: float) -> Health:
    """Return the state after a permit that was not used: another delivery had the attempt."""
    health = replace(health, permits=_without(health.permits, permit.code))
    if permit.epoch != health.epoch:
        return health
    if health.state == State.HALF_OPEN:
        return replace(health, state=State.OPEN, epoch=health.epoch + 1, since=now, probe_at=now)
    if permit.budget_window == health.budget_window:
        return replace(health, first_attempts=max(0, health.first_attempts - (not permit.is_retry)))
    return health


def force_open(health: Health, now: float, why: str, by: str = "") -> Health:
    """Open the breaker until an operator closes it."""
    return replace(_opened(health, 0.0, now, why, by), forced=True)


def force_closed(health: Health, now: float, why: str, by: str = "") -> Health:
    """Close the breaker. It opens again by its own rules."""
    # The next attempt begins the window. By an operator's clock it could begin in the future, and the limit would stay.
    return replace(_closed(health, now, why, by, healthy=False), window=0.0)


def set_limit(health: Health, limit: int | None) -> Health:
    """Set the operator's concurrency limit; None removes it."""
    return replace(health, limit_set=limit)


def current(health: Health, settings: DownstreamSettings, most: int, now: float) -> Health:
    """End windows and permits whose time has passed."""
    concurrency, budget = settings.concurrency, settings.budget
    permits = {code: until for code, until in health.permits.items() if until > now}
    if len(permits) < len(health.permits):
        health = replace(health, permits=permits)
    if concurrency.enabled and now >= health.window + concurrency.window:
        limit = _limit(health, most)
        if health.clean and health.cut < health.window:
            limit = concurrency_limit.grown(limit, most)
        health = replace(_limited(health, limit), window=now, clean=False)
    if budget.enabled and now >= health.budget_window + budget.window:
        health = replace(health, budget_window=now, first_attempts=0, retries=0)
    return health


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
    granted = replace(permit, epoch=health.epoch, window=health.window, budget_window=health.budget_window)
    return replace(health, permits={**health.permits, permit.code: permit.until}), granted


def _probed(health: Health, settings: DownstreamSettings, answer: Answer, now: float) -> Health:
    match answer:
        case Answer.SUCCEEDED:
            return _closed(health, now, "the probe succeeded", healthy=True)
        case Answer.UNKNOWN:
            due = now
        case _:
            due = now + settings.breaker.recovery
    return replace(health, state=State.OPEN, epoch=health.epoch + 1, since=now, probe_at=due)


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
        failures=0,
        healthy=healthy,
        limit=1,
        proven=0,
        throttled=0,
        calm=0,
        window=now,
        clean=False,
        changes=(*health.changes, change)[-MAX_CHANGES:],
    )


def _measured(settings: DownstreamSettings, mean: float) -> float:
    """The mean duration, which only the concurrency limit needs; constant without it, so that nothing is written."""
    return round(mean, 3) if settings.concurrency.enabled else 0.0


def _without(permits: Mapping[str, float], code: str) -> dict[str, float]:
    return {other: until for other, until in permits.items() if other != code}
