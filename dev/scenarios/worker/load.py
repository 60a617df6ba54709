"""What the run has to show of the downstream: who called when, how many at once, and who stood in whose way. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dev.emulator.downstream import Call
from dev.scenarios.runner.checking import Check, counted, named
from dev.scenarios.slots.figures import Interval, peak, utilisation

from .fates import Fate
from .records import Records

# A run must be this many times larger than what runs at once for its retries to show that they hold no place.
TELLING = 10


ANSWERS = {  # how a call can end, in words
    "200": "answered",
    "gone": "too slow, given up",
    "503": "503 SlowDown",
    "500": "500 InternalError",
    "dropped": "connection dropped",
    "404": "404, no such input",
}


def answer_name(answer: str) -> str:
    """How a call ended, by the downstream's word for it; None's, "None", is that of a call that never ended."""
    return ANSWERS.get(answer, "never ended" if answer == "None" else answer)


def interval(call: Call, end: float) -> Interval:
    """A call that has not ended lasts until `end`."""
    return call.began, end if call.ended is None else call.ended


def last_instant(records: Records) -> float:
    """When the last thing was written down."""
    calls = [call.ended or call.began for call in records.calls]
    ends = [manifest.at for manifest in records.manifests] + [letter.sent for letter in records.dead]
    return max(calls + ends + [each.at for each in records.sent])


def never_above(records: Records, limit: int) -> Check:
    """By the downstream's own record: a caller counts from its request to its answer, or until it hangs up."""
    most = peak(interval(call, last_instant(records)) for call in records.calls)
    name = f"never more than {limit} callers at once"
    said = f"at most {most}, in {counted(len(records.calls), 'call')}"
    if most < limit and len(records.sent) <= TELLING * limit:
        return Check(name, None, f"{said}; too few were sent to tell")
    return Check(name, most == limit, said)  # a large run that never came there has gone wrong


def too_slow(fate: Fate, limit: float) -> list[Call]:
    """Its calls that the downstream would have kept waiting for longer than an attempt may take."""
    patience = {number for number, step in enumerate(fate.request.steps, 1) if step.seconds > limit}
    return [call for call in fate.calls if call.number in patience]


def slow_ones_let_go(fates: Sequence[Fate], limit: float) -> Check:
    """Nobody waits behind a slow one for longer than an attempt may take."""
    calls = [(fate.name, call) for fate in fates for call in too_slow(fate, limit)]
    waited = [f"{name} ({call.answer})" for name, call in calls if call.answer != "gone"]
    held = [(call.ended or call.began) - call.began for _, call in calls]
    name = "who is too slow is given up, and its place is free again"
    if not calls:
        return Check(name, None, "none was too slow")
    found = f"{counted(len(calls), 'call')} given up after {min(held):.1f} to {max(held):.1f} s"
    return Check(name, not waited, f"waited for: {named(waited)}" if waited else found)


def under_way(fates: Sequence[Fate], end: float) -> int:
    """The most requests at once that were between their first call and the end of their last one."""
    return peak((fate.calls[0].began, interval(fate.calls[-1], end)[1]) for fate in fates if fate.calls)


def retries_hold_no_place(fates: Sequence[Fate], records: Records, limit: int) -> Check:
    """Who waited for its retry inside the worker would be one of the callers' few all the while."""
    name = "who waits for a retry keeps nobody waiting"
    most = under_way(fates, last_instant(records))
    if most <= limit and len(fates) < TELLING * limit:
        return Check(name, None, f"{counted(most, 'request')} under way at once; too few were sent to tell")
    return Check(name, most > limit, f"{counted(most, 'request')} under way at once, in {limit} places")


def places_used(fates: Sequence[Fate], records: Records, limit: int) -> float | None:
    """The share of the places' time in calls of the downstream, while somebody waited for a first call."""
    firsts = [fate.calls[0].began for fate in fates if fate.calls]
    window = (min(firsts, default=0.0), max(firsts, default=0.0))
    return utilisation([interval(call, window[1]) for call in records.calls], window, limit)


def went_by_schedule(fates: Sequence[Fate], records: Records) -> Check:
    """The retry that was told to come later was seen with Scheduler, and began when its schedule was due."""
    name = "a retry went through EventBridge Scheduler"
    asked = [fate for fate in fates if fate.request.retry_after is not None]
    due = {booking.request_id: booking.due for booking in records.bookings}
    problems = []
    for fate in asked:
        again = [call.began for call in fate.calls[1:]]
        if fate.name not in due:
            problems.append(f"no schedule was seen for {fate.name}")
        elif not again:
            problems.append(f"{fate.name} never came back from its schedule")
        elif again[0] < due[fate.name]:
            problems.append(f"{fate.name} came back {due[fate.name] - again[0]:.1f} s before its schedule was due")
        elif due[fate.name] < (fate.calls[0].ended or 0.0) + (fate.request.retry_after or 0):
            problems.append(f"{fate.name} was due before its Retry-After of {fate.request.retry_after} s")
    waited = ", ".join(f"{fate.calls[1].began - fate.calls[0].began:.0f} s" for fate in asked if len(fate.calls) > 1)
    return Check(name, bool(asked) and not problems, "; ".join(problems) or f"{len(due)} seen; back after {waited}")
