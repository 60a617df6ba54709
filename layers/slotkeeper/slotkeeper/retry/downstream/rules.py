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

The first probe comes early, and after each failed one the wait grows by half, up to `recovery`. So a fault of seconds
stops the work for seconds, and an outage of minutes costs few calls.

Each change of the state begins a new *epoch*. The outcome of an attempt that began in an earlier epoch changes nothing:
it is about a downstream of the past.

A permit that ends without an outcome is a failure: the downstream may have kept the call until the function was
stopped. An outcome that could not be written is no such end: its container writes it with its next change (`carry`).

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
from typing import Any

from slotkeeper.retry.downstream.health import (
    FAILURE,
    SUCCESS,
    Answer,
    Breaker,
    BreakerSettings,
    Budget,
    BudgetSettings,
    Call,
    Change,
    Concurrency,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.policy import share
from slotkeeper.settings import CLOCK_SKEW_SECONDS

MAX_CHANGES = 20  # DynamoDB charges each write by the size of the whole item
# The weight of a call's duration in the mean duration.
NEW_SECONDS_WEIGHT = 0.2

# With fewer messages per second, a second could pass after the recovery without a message that could be the probe.
MIN_PER_SECOND = 2.0
# The wait for the first probe, as a share of the recovery time.
FIRST_PROBE = 1 / 32
# The waits for probes are shorter by up to this share, so that probes do not keep step with a regular fault.
PROBE_JITTER = 0.2
# By how much the wait grows after each failed probe. With 2, the end of an outage is noticed after up to its own length
# again, and at a downstream that is down for 20 of 40 s four fifths of the work is done.
PROBE_GROWTH = 1.5
# Messages that return per permitted attempt. With one, every permit would be unused until the next message returns.
RETURNS_PER_PERMIT = 4
# Windows at one below the last throttled limit. Fewer, and more calls are throttled; more, and a larger capacity is
# found later.
HOLD_WINDOWS = 3


def ask(health: Health, settings: DownstreamSettings, permit: Permit, now: float) -> tuple[Health, Permit | Refusal]:
    """Decide whether an attempt may begin; return the state to store, too.

    A refusal changes nothing, unless permits that have ended open the breaker.

    Args:
        permit: `code`, `until` and `is_retry` of the attempt.
        now: seconds since the epoch.
    """
    after, answer = _asked(current(health, settings, now), settings, permit, now)
    if isinstance(answer, Refusal) and after.breaker.epoch == health.breaker.epoch:
        return health, answer
    return after, answer


def _asked(health: Health, settings: DownstreamSettings, permit: Permit, now: float) -> tuple[Health, Permit | Refusal]:
    breaker, returns = health.breaker, _returns(health, settings)
    if breaker.forced:
        return health, Refusal("breaker", now + settings.breaker.recovery, returns)
    if breaker.state != State.CLOSED and not settings.breaker.enabled:
        closed = _closed(health, now, "the policy disables the breaker", healthy=False)
        return _asked(closed, settings, permit, now)
    is_written = permit.code in health.permits  # by this call's own earlier write, whose answer was lost
    if breaker.state == State.HALF_OPEN:
        if is_written and breaker.probe_at == permit.until:
            return _permitted(health, permit)
        # The probe is under way for an unknown time: messages come back when it has been so for twice as long.
        so_far = min(max(0.0, now - breaker.since), settings.breaker.recovery)
        return health, Refusal("breaker", now + so_far, returns)
    if breaker.state == State.OPEN:
        due = breaker.probe_due(settings.breaker, now)
        if now < due:
            return health, Refusal("breaker", due, returns)
        probing = replace(breaker, state=State.HALF_OPEN, epoch=breaker.epoch + 1, since=now, probe_at=permit.until)
        return _permitted(replace(health, breaker=probing), permit)
    if is_written:
        return _permitted(health, permit)
    callers = health.callers(settings)
    if callers is not None and len(health.permits) >= callers:
        return health, Refusal("concurrency", now, returns)
    allowed = health.allowed_retries(settings)
    if permit.is_retry and allowed is not None and allowed < 1:
        per_second = settings.budget.capacity / settings.budget.window  # by time alone; a success may come earlier
        return health, Refusal("budget", now + (1 - allowed) / per_second, max(MIN_PER_SECOND, per_second))
    after, granted = _permitted(health, permit)
    # Without a limit nothing asks for the permits, and with breaker alone a permit costs no write.
    return (after, granted) if callers is not None else (replace(after, permits={}), granted)


def report(health: Health, settings: DownstreamSettings, permit: Permit, call: Call, now: float) -> tuple[Health, bool]:
    """Return the state after an attempt's call, and whether a failure may count as one of the request's attempts.

    A failure counts only if the downstream's answer before it was a success, and no state has changed since the attempt
    began. Otherwise the downstream may be down, and an outage would use up the attempts of requests that it accepts
    afterwards.
    """
    present = current(health, settings, now)
    ended = replace(present, permits=_without(present.permits, permit.code))
    if permit.epoch != present.breaker.epoch:
        return ended, not settings.breaker.enabled
    counts = not settings.breaker.enabled or (present.breaker.healthy and present.breaker.state == State.CLOSED)
    if present.breaker.state == State.HALF_OPEN:
        return _probed(ended, settings, call.answer, now), counts
    after = replace(ended, concurrency=_limit_after(present, settings, permit, call))
    if call.answer == Answer.SUCCEEDED:
        return _succeeded(after, settings, call, now), counts
    if not _is_failure(call, present.callers(settings)):
        return after, counts
    if settings.budget.enabled and permit.is_retry:
        after = replace(after, budget=_spent(after.budget, settings.budget, now))
    return _failed(after, settings, now), counts


def give_back(health: Health, permit: Permit, now: float) -> Health:
    """Return the state after a permit that was not used: another delivery had the attempt."""
    ended = replace(health, permits=_without(health.permits, permit.code))
    if permit.epoch == health.breaker.epoch and health.breaker.state == State.HALF_OPEN:
        return _reopened(ended, now, now)
    return ended


def carry(health: Health, settings: DownstreamSettings, permit: Permit, call: Call | None, now: float) -> Health:
    """Return the state after an outcome whose own report failed; `call` is None for a permit that was not used.

    The failed write may have taken effect, and only its answer was lost. So the outcome changes the state only while
    its permit is in it: none counts twice. A permit whose lease has ended counts as a failure.
    """
    held = current(health, settings, now).permits.get(permit.code)
    if held is None:
        return health
    present = replace(permit, epoch=held[1])  # an attempt that never began does not know its epoch
    return give_back(health, present, now) if call is None else report(health, settings, present, call, now)[0]


def force_open(health: Health, now: float, why: str, by: str = "") -> Health:
    """Open the breaker until an operator closes it."""
    opened = _opened(health, 0.0, now, why, by)
    return replace(opened, breaker=replace(opened.breaker, forced=True))


def force_closed(health: Health, now: float, why: str, by: str = "") -> Health:
    """Close the breaker. It opens again by its own rules."""
    closed = _closed(health, now, why, by, healthy=False)
    # No probe has shown what the downstream takes now, so the limit starts at one.
    return replace(closed, concurrency=replace(closed.concurrency, limit=1, proven=0, throttled=0, calm=0))


def set_limit(health: Health, limit: int | None) -> Health:
    """Set the operator's concurrency limit; None removes it."""
    return replace(health, concurrency=replace(health.concurrency, limit_set=limit))


def current(health: Health, settings: DownstreamSettings, now: float) -> Health:
    """End windows and permits whose time has passed, and windows that a clock which was ahead has begun."""
    after = health
    for until, code in sorted((until, code) for code, (until, _) in health.permits.items() if until <= now):
        epoch = health.permits[code][1]
        after = replace(after, permits=_without(after.permits, code))
        if epoch == after.breaker.epoch and after.breaker.state == State.CLOSED:
            after = _failed(after, settings, until)
    if after.breaker.state == State.HALF_OPEN and now >= after.breaker.probe_at:
        after = _probed(after, settings, Answer.FAILED, after.breaker.probe_at)
    return replace(
        after,
        concurrency=_in_window(after.concurrency, settings, now),
        budget=_refilled(after.budget, settings.budget, now),
    )


def _is_ahead(at: float, now: float) -> bool:
    """Whether a time was written by a container whose clock was ahead of the others."""
    return at > now + CLOCK_SKEW_SECONDS


def _returns(health: Health, settings: DownstreamSettings) -> float:
    """How many held-back messages return per second. While the breaker is open, the limit is the one before."""
    callers = health.callers(settings)
    permitted = settings.most if callers is None else callers
    return max(MIN_PER_SECOND, RETURNS_PER_PERMIT * permitted / (health.concurrency.seconds or 1.0))


def _permitted(health: Health, permit: Permit) -> tuple[Health, Permit]:
    epoch = health.breaker.epoch
    granted = replace(permit, epoch=epoch, window=health.concurrency.window)
    return replace(health, permits={**health.permits, permit.code: (permit.until, epoch)}), granted


def _without(permits: Mapping[str, tuple[float, int]], code: str) -> dict[str, tuple[float, int]]:
    return {other: held for other, held in permits.items() if other != code}


def _succeeded(health: Health, settings: DownstreamSettings, call: Call, now: float) -> Health:
    breaker, concurrency, budget = health.breaker, health.concurrency, health.budget
    healthy = breaker.healthy or now - call.late - call.seconds >= breaker.failed_at
    # Only the limit needs the mean duration. Constant without it, so that nothing is written.
    mean = _mean(concurrency.seconds, call.seconds) if settings.concurrency.enabled else 0.0
    returned = settings.budget.percent / 100 if settings.budget.enabled else 0.0
    return replace(
        health,
        breaker=replace(breaker, outcomes=_recent(breaker, settings.breaker, SUCCESS), healthy=healthy),
        concurrency=replace(concurrency, seconds=mean),
        budget=replace(budget, spent=max(0.0, budget.spent - returned)),
    )


def _failed(health: Health, settings: DownstreamSettings, now: float) -> Health:
    before = health.breaker
    breaker = replace(
        before,
        outcomes=_recent(before, settings.breaker, FAILURE),
        healthy=False,
        failed_at=now if before.healthy else before.failed_at,
    )
    after = replace(health, breaker=breaker)
    if not settings.breaker.enabled or breaker.failures < settings.breaker.failure_threshold:
        return after
    why = f"{breaker.failures} of the last {settings.breaker.considered} calls failed"
    return _opened(after, now + _probe_wait(breaker, settings.breaker, now), now, why)


# The breaker.


def _recent(breaker: Breaker, settings: BreakerSettings, outcome: str) -> str:
    """The last outcomes from the first failure on. So without failures it is constant, and nothing is written."""
    return (breaker.outcomes + outcome)[-settings.considered :].lstrip(SUCCESS)


def _probe_wait(breaker: Breaker, settings: BreakerSettings, now: float) -> float:
    """The seconds to the next probe. The jitter is computed from the time, so that the rules stay pure."""
    wait = min(1.0, FIRST_PROBE * PROBE_GROWTH ** min(breaker.failed_probes, 100)) * settings.recovery
    return wait * (1 - PROBE_JITTER * share(repr(now), breaker.failed_probes))


def _probed(health: Health, settings: DownstreamSettings, answer: Answer, now: float) -> Health:
    match answer:
        case Answer.SUCCEEDED:
            return _closed(health, now, "the probe succeeded", healthy=True)
        case Answer.UNKNOWN:
            return _reopened(health, now, now)
        case _:
            breaker = replace(health.breaker, failed_probes=health.breaker.failed_probes + 1)
            return _reopened(replace(health, breaker=breaker), now + _probe_wait(breaker, settings.breaker, now), now)


def _reopened(health: Health, probe_at: float, now: float) -> Health:
    return _moved(health, State.OPEN, now, probe_at=probe_at)


def _opened(health: Health, probe_at: float, now: float, why: str, by: str = "") -> Health:
    changes = _changes(health, Change(now, State.OPEN, why, by))
    return _moved(health, State.OPEN, now, probe_at=probe_at, changes=changes)


def _closed(health: Health, now: float, why: str, by: str = "", *, healthy: bool) -> Health:
    closed = _moved(
        health,
        State.CLOSED,
        now,
        forced=False,
        outcomes="",
        failed_probes=0,
        healthy=healthy,
        changes=_changes(health, Change(now, State.CLOSED, why, by)),
    )
    return replace(closed, concurrency=replace(closed.concurrency, window=now, clean=False))


def _moved(health: Health, state: State, now: float, **fields: Any) -> Health:
    """The breaker in another state, which begins an epoch."""
    breaker = replace(health.breaker, state=state, epoch=health.breaker.epoch + 1, since=now, **fields)
    return replace(health, breaker=breaker)


def _changes(health: Health, change: Change) -> tuple[Change, ...]:
    return (*health.breaker.changes, change)[-MAX_CHANGES:]


# The concurrency limit.


def _is_failure(call: Call, callers: int | None) -> bool:
    """Whether the breaker counts a call as a failure. A single caller cannot call less without not calling at all."""
    return call.answer == Answer.FAILED or (call.answer == Answer.THROTTLED and callers == 1)


def _limit_after(health: Health, settings: DownstreamSettings, permit: Permit, call: Call) -> Concurrency:
    """The limit after a call whose permit `health` still has."""
    used, callers, slow = health.concurrency, health.callers(settings), settings.concurrency.slow
    adapts = settings.concurrency.enabled and used.limit_set is None
    is_slow = call.answer == Answer.SUCCEEDED and slow is not None and call.seconds > slow
    if call.answer == Answer.THROTTLED or is_slow:
        if callers == 1 and not is_slow:
            return replace(used, cut=used.window)
        return replace(reduced(used, settings.most), cut=used.window) if adapts and permit.window > used.cut else used
    if call.answer == Answer.SUCCEEDED and adapts and len(health.permits) >= used.adaptive(settings.most):
        return replace(used, clean=True)
    return used


def reduced(used: Concurrency, most: int) -> Concurrency:
    """Return the limit after a throttled answer."""
    limit = used.adaptive(most)
    lower = used.proven if 0 < used.proven < limit else max(1, limit // 2)
    return replace(used, limit=lower, proven=lower, throttled=limit, calm=0)


def grown(used: Concurrency, most: int) -> Concurrency:
    """Return the limit after a window in full use without throttling."""
    limit, throttled = used.adaptive(most), used.throttled
    if limit >= throttled:  # also if none is known
        raised, throttled = limit + max(1, limit // 2), 0
    elif limit < throttled - 1:
        raised = (limit + throttled) // 2
    else:
        raised = throttled if used.calm + 1 >= HOLD_WINDOWS else limit
    raised = min(raised, most)
    return replace(used, limit=raised, proven=limit, throttled=throttled, calm=0 if raised != limit else used.calm + 1)


def _in_window(used: Concurrency, settings: DownstreamSettings, now: float) -> Concurrency:
    """The limit in the window of this time."""
    if not settings.concurrency.enabled:
        return used
    present = replace(used, window=now, cut=-1.0, clean=False) if _is_ahead(used.window, now) else used
    if now < present.window + max(settings.concurrency.window, present.seconds):
        return present
    if present.clean and present.cut < present.window:
        return replace(grown(present, settings.most), window=now, clean=False)
    return replace(present, limit=present.adaptive(settings.most), window=now, clean=False)


def _mean(before: float, seconds: float) -> float:
    return round(before + NEW_SECONDS_WEIGHT * (seconds - before) if before else seconds, 3)


# The budget.


def _spent(budget: Budget, settings: BudgetSettings, now: float) -> Budget:
    """The budget after a retry that failed."""
    spent = min(settings.capacity, budget.spent + 1)
    return Budget(spent, budget.refilled if budget.spent else now)


def _refilled(budget: Budget, settings: BudgetSettings, now: float) -> Budget:
    if not (settings.enabled and budget.spent):
        return budget
    spent = budget.spent - max(0.0, now - budget.refilled) * settings.capacity / settings.window
    return Budget(max(0.0, spent), now if _is_ahead(budget.refilled, now) else max(now, budget.refilled))
