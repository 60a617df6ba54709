"""Why a request is where it is: one sentence, the conditions that fail, the expected start, and what to do next.

Every function decides from what was read before, and makes no call.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queues import hide_seconds
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority
from slotkeeper_cli.conditions import Condition, because, counting, failing, of_waiting
from slotkeeper_cli.expected_start import ExpectedStart, expected_start
from slotkeeper_cli.formatting import count, duration, local_time, one_line, seconds
from slotkeeper_cli.holder_work import work_key, work_noun
from slotkeeper_cli.lease_text import lease_as_dict, lease_text
from slotkeeper_cli.request_finder import RequestAttempt, RequestAttempts
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.slot_release import release_of
from slotkeeper_cli.waiting_requests import ahead_of

_NEW_ID = "A_NEW_ID"
# Conditions that time ends: with any other, an expected start would be a guess.
_ENDED_BY_TIME = {"slots", "holders", "priority", "queue"}
# Conditions that do not apply to a lease: it runs no target, and has no place in a message group.
_NOT_OF_LEASES = {"target", "priority", "queue"}


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
class Facts:
    """What the explanations of a stack's requests have in common.

    Args:
        now: seconds since the epoch.
        event_source: the condition that the starter receives messages, if it fails.
        queued: the approximate number of messages on RequestQueue, of all processes.
        visible: those of them that are not hidden.
        visibility: the default visibility timeout of RequestQueue, in seconds.
        slot_seconds: for how long recent executions have held their slots, by process.
        grace_seconds: the stack's GraceSeconds.
    """

    now: float
    event_source: tuple[Condition, ...] = ()
    queued: int = 0
    visible: int = 0
    visibility: int = 180
    slot_seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    grace_seconds: int = 120


def explain_attempts(one: RequestAttempts, facts: Facts) -> Explanation:
    """Explain the last known attempt of a request in a process."""
    last = one.attempts[-1]
    match last.state:
        case RequestState.WAITING:
            return _waiting(one, last, facts)
        case RequestState.QUEUED:
            return _queued_again(one, last, facts)
        case RequestState.FAILED | RequestState.DEAD_LETTERED:
            return _ended_badly(one, last, facts)
        case RequestState.CANCELLED:
            return _cancelled(one, last)
        case _:
            return _with_execution(one, last, facts)


def _waiting(one: RequestAttempts, last: RequestAttempt, facts: Facts) -> Explanation:
    process = one.process
    waiting = next(each for each in process.waiting.values() if each.execution == last.execution)
    conditions = (*facts.event_source, *of_waiting(process, waiting))
    since = duration(facts.now - waiting.since)
    answer = f"it has waited for {since}, as the first request of its priority: {because(conditions)}"
    hidden = duration(hide_seconds(facts.now - waiting.since, facts.visibility))
    if not conditions:
        answer += ". A wake makes its message visible immediately; the janitor repeats a lost one within a minute"
    else:
        answer += f". Its message is hidden until a wake, for at most {hidden} after each receive"
    ahead = [each.weight for each in ahead_of(process, waiting)]
    expected = _expected(process, conditions, ahead, waiting.weight, facts)
    return Explanation(last.state, f"{answer}.", conditions, expected, (*_ends(conditions), _cancel(one)))


def _queued_again(one: RequestAttempts, last: RequestAttempt, facts: Facts) -> Explanation:
    by = last.details.get("by", "")
    whom = f"a redrive by {by.rpartition(':')[2]}" if by else "its workflow, which found its reservation gone,"
    at = local_time(seconds(last.details["since"]))
    queue = queue_conditions(one.process, facts, last.details.get("priority", DEFAULT_PRIORITY))
    answer = f"{whom} sent attempt {last.number} to RequestQueue at {at}, and it has not been received since"
    if not facts.queued:
        answer += ". RequestQueue is empty: the message was deleted, or it was not sent"
        return Explanation(RequestState.QUEUED, f"{answer}.", (), None, (_submit(one.process.name, _NEW_ID),))
    expected = _expected(one.process, queue, _weights(one.process), one.process.default_weight, facts)
    return Explanation(
        last.state, f"{answer}: {because(queue)}.", tuple(queue), expected, (*_ends(queue), _cancel(one))
    )


def _ended_badly(one: RequestAttempts, last: RequestAttempt, facts: Facts) -> Explanation:
    message, name = last.dlq_message, one.process.name
    reason = str(last.details.get("reason") or last.details.get("error") or (message.reason if message else ""))
    status = last.details.get("status", "")
    answer = f"attempt {last.number or 'unknown'} {last.state}"
    answer += f" ({status})" if status else ""
    answer += f": {one_line(reason)}" if reason else ""
    if message is None:
        answer += (
            ". Its message is not in FailedRequestQueue: it was not kept, or it was redriven outside slotkeeper, "
            "deleted, or has expired"
        )
        if facts.queued:
            answer += (
                f". RequestQueue has about {count(facts.queued, 'message')}, and may have attempt {one.next_number}"
            )
        return Explanation(last.state, f"{answer}.", next_steps=(_submit(name, _NEW_ID),))
    answer += f". It is kept in {message.queue.full_name} ({message.code}) for 14 days"
    return Explanation(last.state, f"{answer}.", next_steps=_redrive_steps(one, message.code, message.queue.value))


def _redrive_steps(one: RequestAttempts, code: str, queue: str) -> tuple[str, ...]:
    redrive = _redrive(queue, one.request_id)
    match code:
        case "UnknownProcess":
            return f"slotkeeper process add {one.process.name} --limit 1 --target JOB_OR_ARN", redrive
        case "RequestIdReused":
            return (_submit(one.process.name, _NEW_ID),)
        case "InvalidRequest" | "LeasesOnly":
            return f"slotkeeper dlq show {queue}", _submit("PROCESS", one.request_id)
        case _:
            return (redrive,)


def _cancelled(one: RequestAttempts, last: RequestAttempt) -> Explanation:
    by = f" by {last.details['by']}" if last.details.get("by") else ""
    at = local_time(seconds(last.details["since"]))
    answer = (
        f"it was cancelled{by} at {at}. If it is queued, it goes to RequestDeadLetterQueue with code Cancelled when "
        "it is received. To run it after that, redrive it"
    )
    return Explanation(last.state, f"{answer}.", next_steps=(_redrive("request", one.request_id),))


def _with_execution(one: RequestAttempts, last: RequestAttempt, facts: Facts) -> Explanation:
    details, target = last.details, last.details.get("target", one.process.target)
    noun, work = work_noun(target), last.details.get(work_key(target))
    stop = (_cancel(one, "--stop"),)
    age = facts.now - seconds(details["since"]) if "since" in details else 0.0
    match last.state:
        case RequestState.STARTING:
            answer = f"it reserved a slot {duration(age)} ago, and its workflow has not confirmed it"
            if age > facts.grace_seconds:
                answer += ": its starter has probably died. The janitor frees the slot, and the message comes back"
            return Explanation(last.state, f"{answer}.")
        case RequestState.RUNNING:
            runs = f"its {noun} {work['id']} is {work['state']}" if work else f"no {noun} of it was found"
            return Explanation(last.state, f"it has held a slot for {duration(age)}, and {runs}.", next_steps=stop)
        case RequestState.STOPPED:
            free = release_of(details).text(facts.now)
            answer = f"its execution has ended ({details['status']}), and its slot will be free {free}"
            return Explanation(last.state, f"{answer}.", next_steps=(f"slotkeeper holder release {last.execution}",))
        case RequestState.FINISHING:
            return Explanation(last.state, "it has released its slot, and its execution is about to end.")
        case _:
            ended = f" at {local_time(seconds(details['ended']))}" if "ended" in details else ""
            runs = f": {noun} {work['id']} {work['state']}" if work else ""
            return Explanation(last.state, f"attempt {last.number or 'unknown'} {last.state}{ended}{runs}.")


def queue_conditions(process: Process, facts: Facts, priority: Priority = DEFAULT_PRIORITY) -> list[Condition]:
    """The conditions that keep a request of the default weight from starting that has not been received yet."""
    return [*facts.event_source, *failing(process, process.default_weight, priority)]


def explain_queue(process: Process, facts: Facts) -> Explanation:
    """Why a request of a process that is perhaps queued has not started. Its priority and weight are not known."""
    conditions = queue_conditions(process, facts)
    answer = f"perhaps queued in {process.name}: {because(conditions)}" if conditions else ""
    expected = _expected(process, conditions, _weights(process), process.default_weight, facts)
    return Explanation(RequestState.PERHAPS_QUEUED, answer, tuple(conditions), expected, _ends(conditions))


def explain_lease(process: Process, name: str, holder: Holder, facts: Facts) -> Explanation:
    """Why a lease holds its slot."""
    if holder.until is None:
        raise ValueError(f"{name} is not a lease")
    ends = lease_text(lease_as_dict(holder.until, facts.now))
    answer = f"a block of code holds a slot of {process.name} as this lease for {duration(facts.now - holder.since)}"
    answer += f", and the lease {ends}. No record shows whether the code still runs"
    steps = (f"slotkeeper holder release {name}",) if holder.has_expired(facts.now) else ()
    return Explanation(RequestState.RUNNING, f"{answer}.", next_steps=steps)


def lease_conditions(process: Process, weight: int) -> list[Condition]:
    """The conditions that keep a block of code from taking a lease. Every registered request is before it."""
    found = [each for each in failing(process, weight, DEFAULT_PRIORITY) if each.name not in _NOT_OF_LEASES]
    if ahead := list(counting(process, tuple(process.waiting))):
        text = f"behind the waiting request {ahead[0].request_id}"
        found.append(Condition("queue", text, {"ahead": [each.request_id for each in ahead]}))
    return found


def _expected(
    process: Process, conditions: Sequence[Condition], ahead: Sequence[int], weight: int, facts: Facts
) -> ExpectedStart | None:
    if not conditions or any(each.name not in _ENDED_BY_TIME for each in conditions):
        return None
    return expected_start(process, ahead, weight, facts.slot_seconds.get(process.name, ()), facts.now)


def _weights(process: Process) -> list[int]:
    """The weights of the registered requests, as if each were before an unknown one."""
    return [each.weight for each in counting(process, tuple(process.waiting))]


def _ends(conditions: Sequence[Condition]) -> tuple[str, ...]:
    return tuple(each.ends_by for each in conditions if each.ends_by)


def _cancel(one: RequestAttempts, *options: str) -> str:
    return shlex.join(["slotkeeper", "request", "cancel", one.request_id, "--process", one.process.name, *options])


def _redrive(queue: str, request_id: str) -> str:
    return shlex.join(["slotkeeper", "dlq", "redrive", queue, "--id", request_id])


def _submit(process: str, request_id: str) -> str:
    """The command that sends a request again. An id whose attempt has run runs no more: it needs a new one."""
    words = ["slotkeeper", "request", "submit", "--process", process, "--request-id", request_id, "--arg", "KEY=VALUE"]
    return shlex.join(words)
