"""Why a request is where it is: one sentence, the conditions that fail, the expected start, and what to do next.

Every function decides from what was read before, and makes no call.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.slots.lost_requests import send_again, submission
from slotkeeper.slots.process import MAX_HOLDERS, Holder, Process, WaitingRequest
from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.conditions import (
    NO_MESSAGE,
    Condition,
    ahead_of,
    because,
    counting,
    failing,
    missing_message,
    of_waiting,
)
from slotkeeper_cli.formatting import count, duration, iso, local_time, one_line, seconds
from slotkeeper_cli.holders import lease_as_dict, lease_text, release_of
from slotkeeper_cli.request_finder import RequestAttempt, RequestAttempts
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.slot_control import add_command, no_process

# Durations below which no range is stated.
MIN_SAMPLES = 5
_LOW, _HIGH = 0.1, 0.9
_NEW_ID = ToFillIn("A_NEW_ID")
# Conditions that time ends: with any other, an expected start would be a guess.
_ENDED_BY_TIME = {"slots", "holders", "priority", "queue"}
# Conditions that do not apply to a lease: it runs no target, and has no place in a message group.
_NOT_OF_LEASES = {"target", "priority", "queue"}


@dataclass(frozen=True)
class ExpectedStart:
    """A range, in seconds since the epoch.

    Args:
        earliest: None if no holder is expected to free its slot, as if each has run for longer than recent executions.
        latest: None without an upper bound.
        samples: the number of durations.
    """

    earliest: float | None
    latest: float | None
    samples: int

    def as_dict(self, now: float) -> dict[str, Any]:
        """The range as JSON shows it."""
        earliest, latest = (None if each is None else iso(each) for each in (self.earliest, self.latest))
        return {"earliest": earliest, "latest": latest, "samples": self.samples, "text": self.text(now)}

    def text(self, now: float) -> str:
        """The range as text: `in 2 min to 5 min, by 2026-11-22 14:05:30 CET (34 recent executions)`."""
        if self.samples < MIN_SAMPLES:
            return f"not known: {count(self.samples, 'recent execution')} of the process, {MIN_SAMPLES} are needed"
        of = f"({count(self.samples, 'recent execution')})"
        if self.earliest is None:
            return f"not known: the holders have run for longer than each recent execution {of}"
        low = duration(self.earliest - now)
        if self.latest is None:
            return f"in {low} or later: a holder has run for longer than each recent execution {of}"
        high = duration(self.latest - now)
        between = low if low == high else f"{low} to {high}"
        return f"in {between}, by about {local_time(self.latest)} {of}"


def expected_start(
    process: Process, ahead: Iterable[int], weight: int, durations: Sequence[float], now: float
) -> ExpectedStart:
    """When a request of a process is expected to start, if nothing but the holders keeps it from starting.

    Args:
        ahead: the weights of the requests that start before it, in their order.
        durations: of recent executions of the process, in seconds.
        now: seconds since the epoch.
    """
    if len(durations) < MIN_SAMPLES:
        return ExpectedStart(None, None, len(durations))
    queue = [*ahead, weight]
    ordered = sorted(durations)
    low, high = (_start(process, queue, ordered, share, now) for share in (_LOW, _HIGH))
    return ExpectedStart(_finite(low), _finite(high), len(durations))


def _finite(moment: float) -> float | None:
    return None if math.isinf(moment) else moment


def _start(process: Process, queue: Sequence[int], durations: Sequence[float], share: float, now: float) -> float:
    """When the last request of a queue starts, if each execution lasts as long as this share of the durations."""
    ends = [(_end(holder, durations, share, now), holder.weight) for holder in process.holders.values()]
    heapq.heapify(ends)
    in_use, moment = max(process.slots_in_use, process.held_weight), now
    for weight in queue:
        while in_use + weight > process.slot_limit or len(ends) >= MAX_HOLDERS:
            if not ends:
                return math.inf
            end, freed = heapq.heappop(ends)
            moment, in_use = max(moment, end), in_use - freed
        heapq.heappush(ends, (moment + _quantile(durations, share), weight))
        in_use += weight
    return moment


def _end(holder: Holder, durations: Sequence[float], share: float, now: float) -> float:
    """When a holder is expected to free its slot: infinite if it has run for longer than each duration."""
    if holder.until is not None:
        # A lease ends at any time until its end.
        return now if share == _LOW else float(holder.removable_from or holder.until)
    age = now - holder.since
    longer = [each for each in durations if each > age]
    if not longer:
        return math.inf
    return holder.since + _quantile(longer, share)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class Explanation:
    """The answer to "why?".

    Args:
        answer: one or two sentences.
        conditions: those of a start that fail.
        expected: when it is expected to start; None if that is not a matter of time.
        next_steps: commands, the first is the usual one; empty if there is nothing to do.
    """

    state: RequestState
    answer: str
    conditions: tuple[Condition, ...] = ()
    expected: ExpectedStart | None = None
    next_steps: tuple[str, ...] = ()

    def as_dict(self, now: float) -> dict[str, Any]:
        """The explanation as JSON shows it."""
        return {
            "state": self.state,
            "answer": self.answer,
            "conditions": [each.as_dict() for each in self.conditions],
            "expected_start": self.expected and self.expected.as_dict(now),
            "next_steps": list(self.next_steps),
        }


@dataclass(frozen=True)
class StackFacts:
    """What the explanations of a stack's requests have in common.

    Args:
        now: seconds since the epoch.
        event_source: the condition that the starter receives messages, if it fails.
        queued: the approximate number of messages on RequestQueue, of all processes.
        slot_seconds: for how long recent executions have held their slots, by process.
        grace_seconds: the stack's GraceSeconds.
        processes: the names of all processes, also of malformed ones.
        malformed: the fault in the item of a process, by name.
        unread: the sources of which something could not be read.
    """

    now: float
    event_source: tuple[Condition, ...] = ()
    queued: int = 0
    slot_seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    grace_seconds: int = 120
    processes: frozenset[str] = frozenset()
    malformed: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()


def explain_attempts(one: RequestAttempts, facts: StackFacts) -> Explanation:
    """Explain the last known attempt of a request in a process."""
    last = one.attempts[-1]
    match last.state:
        case RequestState.WAITING:
            return _waiting(one, last, facts)
        case RequestState.QUEUED:
            return _queued(one, last, facts)
        case RequestState.FAILED | RequestState.DEAD_LETTERED:
            return _ended_badly(one, last, facts)
        case RequestState.CANCELLED:
            return _cancelled(one, last)
        case RequestState.SKIPPED:
            return _skipped(one, last)
        case RequestState.LOST:
            return _lost(one, last)
        case _:
            return _with_execution(one, last, facts)


def _waiting(one: RequestAttempts, last: RequestAttempt, facts: StackFacts) -> Explanation:
    process = one.process
    waiting = next(each for each in process.waiting.values() if each.execution == last.execution)
    conditions = (*missing_message(facts.queued), *facts.event_source, *of_waiting(process, waiting, facts.now))
    since = duration(facts.now - waiting.since)
    answer = f"it has waited for {since}, as the first request of its priority: {because(conditions)}"
    if not facts.queued:
        answer += ". If so, the janitor names it as lost within some minutes, with the command that sends it again"
    elif not conditions:
        answer += ". A wake makes its message visible immediately; the janitor repeats a lost one within a minute"
    else:
        answer += f". Its message is hidden until a wake{_back(waiting, facts.now)}"
    if waiting.start_before is not None:
        answer += f". If it has not started before {local_time(waiting.start_before)}, it is dead-lettered as TooLate"
    ahead = [each.weight for each in ahead_of(process, waiting)]
    expected = _expected(process, conditions, ahead, waiting.weight, facts)
    return Explanation(last.state, f"{answer}.", conditions, expected, (*_ends(conditions), _cancel(one)))


def _back(waiting: WaitingRequest, now: float) -> str:
    """Until when the message of a registration is hidden if no wake comes."""
    back = waiting.hidden_until
    if back < now:
        return f", and should have come back {duration(now - back)} ago"
    return f", or for {duration(back - now)}, until {local_time(back)}"


def _queued(one: RequestAttempts, last: RequestAttempt, facts: StackFacts) -> Explanation:
    """Explain an attempt that was sent to RequestQueue, and is not registered: it is in the queue or gone."""
    if not facts.queued:
        answer = f"{_sent(last)}. {NO_MESSAGE}"
        again = submission(one.process.name, one.request_id, last.number or 1)
        return Explanation(RequestState.QUEUED, f"{answer}.", next_steps=(again,))
    conditions = queue_conditions(one.process, facts)
    expected = _expected_behind(one.process, conditions, facts)
    queued = count(facts.queued, "message")
    answer = f"{_sent(last)}. It is one of about {queued} on RequestQueue: {because(conditions)}"
    return Explanation(last.state, f"{answer}.", tuple(conditions), expected, (*_ends(conditions), _cancel(one)))


def _sent(attempt: RequestAttempt) -> str:
    """How an attempt came to RequestQueue."""
    details = attempt.details
    if cleared := details.get("cleared"):
        at = local_time(seconds(cleared))
        return f"its message was not hidden any more at {at}, when it was to be woken, and has not been received since"
    by, at = details.get("by", ""), local_time(seconds(details["since"]))
    whom = (
        f"a redrive by {by.rpartition(':')[2]}"
        if by
        else "the workflow of the attempt before, which had lost its slot,"
    )
    return f"{whom} sent attempt {attempt.number} at {at}, and it has not been received since"


def _skipped(one: RequestAttempts, last: RequestAttempt) -> Explanation:
    at = local_time(seconds(last.details["since"]))
    answer = f"it was skipped at {at}: {last.details['reason']}. Nothing of it runs, and it is in no queue"
    # As its next attempt, so that it is not taken for the one that was skipped.
    again = submission(one.process.name, one.request_id, one.next_number)
    return Explanation(last.state, f"{answer}.", next_steps=(again,))


def _lost(one: RequestAttempts, last: RequestAttempt) -> Explanation:
    at = local_time(seconds(last.details["noted"]))
    answer = (
        f"its message had left RequestQueue at {at}, and nothing had handled it: it was deleted, the queue was purged, "
        "or SQS moved it to RequestDeadLetterQueue after its last receive"
    )
    again = send_again(one.process.name, last.execution, one.process.lost[last.execution])
    if not again:
        answer += ". Only its caller can send it again, since a task token belongs to it"
    return Explanation(last.state, f"{answer}.", next_steps=(again,) if again else ())


def _ended_badly(one: RequestAttempts, last: RequestAttempt, facts: StackFacts) -> Explanation:
    message = last.dlq_message
    reason = str(last.details.get("reason") or last.details.get("error") or (message.reason if message else ""))
    status = last.details.get("status", "")
    answer = f"attempt {last.number or 'unknown'} {last.state}"
    answer += f" ({status})" if status else ""
    answer += f": {one_line(reason)}" if reason else ""
    if message is None:
        if "FailedRequestQueue" in facts.unread:
            answer += ". Its message was not found in the part of FailedRequestQueue that could be read"
            return Explanation(last.state, f"{answer}.")
        answer += (
            ". Its message is not in FailedRequestQueue: it was not kept, or it was redriven outside slotkeeper, "
            "deleted, or has expired"
        )
        if facts.queued:
            answer += (
                f". Attempt {one.next_number} may be one of about {count(facts.queued, 'message')} on RequestQueue"
            )
        again = submission(one.process.name, one.request_id, one.next_number)
        return Explanation(last.state, f"{answer}.", next_steps=(again,))
    answer += f". It is kept in {message.queue.full_name} ({message.code}) for 14 days"
    is_unknown = message.code == "UnknownProcess" and one.process.name not in facts.processes
    now = f" Now {no_process(one.process.name, facts.processes)}" if is_unknown else ""
    return Explanation(last.state, f"{answer}.{now}", next_steps=_redrive_steps(one, message.code, message.queue.value))


def _redrive_steps(one: RequestAttempts, code: str, queue: str) -> tuple[str, ...]:
    redrive = next_step("dlq redrive", queue, id=one.request_id)
    match code:
        case "UnknownProcess":
            return add_command(one.process.name), redrive
        case "RequestIdReused":
            return (submission(one.process.name, _NEW_ID, 1),)
        case "TooLate":
            return (next_step("dlq redrive", queue, id=one.request_id, start_before=ToFillIn("HH:MM")),)
        case "InvalidRequest" | "LeasesOnly":
            return (next_step("dlq show", queue),)
        case _:
            return (redrive,)


def _cancelled(one: RequestAttempts, last: RequestAttempt) -> Explanation:
    by = f" by {last.details['by']}" if last.details.get("by") else ""
    at = local_time(seconds(last.details["since"]))
    answer = (
        f"it was cancelled{by} at {at}. If it is queued, it goes to RequestDeadLetterQueue with code Cancelled when "
        "it is received. To run it after that, redrive it"
    )
    return Explanation(last.state, f"{answer}.", next_steps=(next_step("dlq redrive", "request", id=one.request_id),))


def _with_execution(one: RequestAttempts, last: RequestAttempt, facts: StackFacts) -> Explanation:
    details, target = last.details, last.details.get("target", one.process.target)
    noun, work = kind_of(target).work_noun, last.details.get(kind_of(target).work_key)
    stop = (_cancel(one, stop=True),)
    age = facts.now - seconds(details["since"]) if "since" in details else 0.0
    match last.state:
        case RequestState.STARTING:
            answer = f"it reserved a slot {duration(age)} ago, and its workflow has not confirmed it"
            if age > facts.grace_seconds:
                answer += ": its starter has probably died. The janitor frees the slot, and the message comes back"
            return Explanation(last.state, f"{answer}.")
        case RequestState.RUNNING:
            if one.process.name in facts.malformed:
                return Explanation(last.state, "its execution runs. Whether it holds its slot could not be read.")
            runs = f"its {noun} {work['id']} is {work['state']}" if work else f"no {noun} of it was found"
            return Explanation(last.state, f"it has held a slot for {duration(age)}, and {runs}.", next_steps=stop)
        case RequestState.STOPPED:
            free = release_of(details).text(facts.now)
            answer = f"its execution has ended ({details['status']}), and its slot will be free {free}"
            return Explanation(last.state, f"{answer}.", next_steps=(next_step("holder release", last.execution),))
        case RequestState.FINISHING:
            return Explanation(last.state, "it has released its slot, and its execution is about to end.")
        case _:
            ended = f" at {local_time(seconds(details['ended']))}" if "ended" in details else ""
            runs = f": {noun} {work['id']} {work['state']}" if work else ""
            return Explanation(last.state, f"attempt {last.number or 'unknown'} {last.state}{ended}{runs}.")


def queue_conditions(process: Process, facts: StackFacts) -> list[Condition]:
    """The conditions that keep a request of the default weight from starting that has not been received yet."""
    if error := facts.malformed.get(process.name):
        text = f"the item of process {process.name} is malformed, so no request of it starts: {error}"
        repair = next_step("process repair", process.name)
        return [*facts.event_source, Condition("malformed process", text, {"error": error}, repair)]
    return [*facts.event_source, *failing(process, process.default_weight, DEFAULT_PRIORITY, now=facts.now)]


def explain_queue(process: Process, facts: StackFacts) -> Explanation:
    """Why a request of a process that is perhaps queued has not started. Its priority and weight are not known."""
    conditions = queue_conditions(process, facts)
    answer = f"perhaps queued in {process.name}: {because(conditions)}" if conditions else ""
    expected = _expected_behind(process, conditions, facts)
    return Explanation(RequestState.PERHAPS_QUEUED, answer, tuple(conditions), expected, _ends(conditions))


def explain_lease(process: Process, name: str, holder: Holder, facts: StackFacts) -> Explanation:
    """Why a lease holds its slot."""
    if holder.until is None:
        raise ValueError(f"{name} is not a lease")
    ends = lease_text(lease_as_dict(holder.until, facts.now))
    answer = f"a block of code holds a slot of {process.name} as this lease for {duration(facts.now - holder.since)}"
    answer += f", and the lease {ends}. No record shows whether the code still runs"
    steps = (next_step("holder release", name),) if holder.has_expired(facts.now) else ()
    return Explanation(RequestState.RUNNING, f"{answer}.", next_steps=steps)


def lease_conditions(process: Process, weight: int, now: float) -> list[Condition]:
    """The conditions that keep a block of code from taking a lease. Every registered request is before it.

    `now`: seconds since the epoch.
    """
    every = failing(process, weight, DEFAULT_PRIORITY, now=now)
    found = [each for each in every if each.name not in _NOT_OF_LEASES]
    if ahead := list(counting(process, tuple(process.waiting))):
        text = f"behind the waiting request {ahead[0].request_id}"
        found.append(Condition("queue", text, {"ahead": [each.request_id for each in ahead]}))
    return found


def _expected(
    process: Process, conditions: Sequence[Condition], ahead: Sequence[int], weight: int, facts: StackFacts
) -> ExpectedStart | None:
    if not conditions or any(each.name not in _ENDED_BY_TIME for each in conditions):
        return None
    return expected_start(process, ahead, weight, facts.slot_seconds.get(process.name, ()), facts.now)


def _expected_behind(process: Process, conditions: Sequence[Condition], facts: StackFacts) -> ExpectedStart | None:
    """When a request that has not been received is expected to start.

    At the earliest as the one after the registered requests, at the latest as the last of RequestQueue.
    """
    ahead, weight = [each.weight for each in counting(process, tuple(process.waiting))], process.default_weight
    first = _expected(process, conditions, ahead, weight, facts)
    others = max(0, facts.queued - len(ahead) - 1)
    last = _expected(process, conditions, [*ahead, *[weight] * others], weight, facts)
    return first and last and ExpectedStart(first.earliest, last.latest, first.samples)


def _ends(conditions: Sequence[Condition]) -> tuple[str, ...]:
    return tuple(each.ends_by for each in conditions if each.ends_by)


def _cancel(one: RequestAttempts, **options: object) -> str:
    return next_step("request cancel", one.request_id, process=one.process.name, **options)
