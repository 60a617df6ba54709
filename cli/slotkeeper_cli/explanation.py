"""Why a request is where it is: one sentence, the reasons, the expected start, and what to do next.

Every function decides from what was read before, and makes no call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.conditions import Condition, because
from slotkeeper_cli.expected_start import ExpectedStart
from slotkeeper_cli.formatting import duration, local_time, one_line
from slotkeeper_cli.holders import lease_as_dict, lease_text
from slotkeeper_cli.process_queue import ProcessQueue, QueuedRequest
from slotkeeper_cli.request_finder import FoundRequest, Run, failure_of, is_discarded
from slotkeeper_cli.requests import WITHOUT_CONTENT, RequestState, hide_tokens, state_of
from slotkeeper_cli.slot_control import add_command

# Seconds after which the invocation has ended that has reserved a slot and starts its workflow.
STARTER_SECONDS = 60
_RING = "the janitor starts what can start, once a minute"


@dataclass(frozen=True)
class Explanation:
    """The answer to "why?".

    Attributes:
        answer: in words.
        reasons: why it has not started; empty for a request that has.
        position: in the queue of its process; 1 starts next.
        expected: None if the request is not queued, or something else than time must change before it starts.
        next_steps: commands, the first is the usual one; empty if there is nothing to do.
    """

    state: RequestState
    answer: str
    reasons: tuple[Condition, ...] = ()
    position: int | None = None
    expected: ExpectedStart | None = None
    next_steps: tuple[str, ...] = ()

    def as_dict(self, now: float) -> dict[str, Any]:
        """The explanation as JSON shows it."""
        return {
            "state": self.state,
            "answer": self.answer,
            "position": self.position,
            "ahead": None if self.position is None else self.position - 1,
            "reasons": [each.as_dict() for each in self.reasons],
            "expected_start": self.expected and self.expected.as_dict(now),
            "next": list(self.next_steps),
        }


@dataclass(frozen=True)
class StackFacts:
    """What the explanations of a stack's requests have in common.

    Args:
        now: seconds since the epoch.
        doorbell: the condition that the starter receives messages of DispatchQueue, if it fails.
        slot_seconds: for how long recent requests have held their slots, by process.
        processes: the names of all processes, also of malformed ones.
    """

    now: float
    doorbell: tuple[Condition, ...] = ()
    slot_seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    processes: frozenset[str] = frozenset()


def explain_request(found: FoundRequest, queue: ProcessQueue | None, run: Run, facts: StackFacts) -> Explanation:
    """Explain the last attempt of a request.

    Args:
        queue: of its process; None if the request is not queued, or the process does not exist.
    """
    row, state = found.last, state_of(found.last.state)
    match state:
        case RequestState.QUEUED:
            return _queued(found, queue, run, facts)
        case RequestState.STARTED:
            return _started(found, run, facts)
        case RequestState.SUCCEEDED:
            work = f": {kind_of(run.target).work_noun} {run.work['id']} {run.work['state']}" if run.work else ""
            held = ", and is about to release its slot" if run.holder else ""
            return Explanation(state, f"attempt {row.attempt} succeeded{_at(row.ended)}{work}{held}.{_published(row)}")
        case RequestState.RETURNED | RequestState.REDRIVEN:
            how = "found its slot gone before its work began" if state is RequestState.RETURNED else "was redriven"
            return Explanation(state, f"attempt {row.attempt} {how}{_at(row.ended)}. No later attempt was found.")
        case _:
            why = one_line(hide_tokens(failure_of(row)))
            code = f" ({row.code})" if row.code else ""
            answer = f"attempt {row.attempt} {_ENDS.get(state, state)}{_at(row.ended)}{code}: {why}".rstrip(".: ")
            discarded = " It was discarded." if is_discarded(row) else ""
            return Explanation(state, f"{answer}.{discarded}{_published(row)}", next_steps=_after_end(found, facts))


_ENDS = {
    RequestState.SKIPPED: "was skipped",
    RequestState.TOO_LATE: "was too late",
    RequestState.CANCELLED: "was cancelled",
    RequestState.REJECTED: "was rejected",
}


def _at(moment: float | None) -> str:
    return "" if moment is None else f" at {local_time(moment)}"


def _published(row: RequestRow) -> str:
    """A sentence if the end of a request is not published yet."""
    if not row.is_unpublished:
        return ""
    return " Its end is not published yet, so a caller that waits has no answer: the janitor repeats it."


def _after_end(found: FoundRequest, facts: StackFacts) -> tuple[str, ...]:
    """What runs a request that has failed, or ended without a start."""
    row = found.last
    if row.code in WITHOUT_CONTENT or is_discarded(row):
        return (next_step("request submit", process=found.process, request_id=ToFillIn("A_NEW_ID")),)
    later = {"start_before": ToFillIn("HH:MM")} if row.state == "TOO_LATE" else {}
    redrive = next_step("failed redrive", found.request_id, process=found.process, **later)
    return (redrive,) if found.process in facts.processes else (add_command(found.process), redrive)


def _queued(found: FoundRequest, queue: ProcessQueue | None, run: Run, facts: StackFacts) -> Explanation:
    row, state = found.last, RequestState.QUEUED
    cancel = next_step("request cancel", found.request_id, process=found.process)
    waited = f"it has waited for {duration(facts.now - row.sent)}"
    if run.holder is not None:
        age = facts.now - run.holder.since
        answer = f"{waited}. A slot was reserved for it {duration(age)} ago, and its workflow is being started"
        if age > STARTER_SECONDS:
            answer += ". Its starter has probably died: the next dispatch starts it again"
        return Explanation(state, f"{answer}.", next_steps=ends_of(facts.doorbell))
    if queue is None:
        answer = f"{waited}, and its process does not exist: the next dispatch rejects it"
        return Explanation(state, f"{answer}.", next_steps=(add_command(found.process), cancel))
    entry = queue.find(row.execution)
    if entry is None and queue.is_cut:
        return Explanation(state, f"{waited}, behind {queue.number} requests.", next_steps=(cancel,))
    if entry is None:
        return Explanation(state, f"{waited}, and has left the queue since: run this again.")
    reasons = (*entry.reasons, *facts.doorbell)
    answer = f"{_place(entry, queue)}, and has waited for {duration(facts.now - row.sent)}: {because(reasons)}"
    answer += f"; {_RING}" * bool(facts.doorbell)
    if entry.start_before is not None:
        answer += f". If it has not started before {local_time(entry.start_before)}, it ends as too late"
    expected = None if facts.doorbell else queue.expected(entry, facts.slot_seconds.get(found.process, ()))
    return Explanation(state, f"{answer}.", reasons, entry.position, expected, (*ends_of(reasons), cancel))


def _place(entry: QueuedRequest, queue: ProcessQueue) -> str:
    if entry.position is None:
        return f"it is one of {queue.number} in the queue"
    return f"it is number {entry.position:,} of {queue.number} in the queue"


def ends_of(reasons: Sequence[Condition]) -> tuple[str, ...]:
    """The commands that end conditions, each once."""
    return tuple(dict.fromkeys(each.ends_by for each in reasons if each.ends_by))


def _started(found: FoundRequest, run: Run, facts: StackFacts) -> Explanation:
    state, row = RequestState.STARTED, found.last
    noun = kind_of(run.target).work_noun if run.target else "work"
    if not run.is_read:
        runs = f"is {run.execution.status}" if run.execution else "could not be found"
        return Explanation(state, f"its execution {runs}. Whether it holds its slot could not be read.")
    if run.holder is None:
        ended = run.execution is not None and run.execution.is_closed
        answer = "it holds no slot, and its execution "
        if ended and run.execution:
            answer += f"has ended ({run.execution.status}). Its end is about to be recorded"
        else:
            answer += "is about to end" if run.execution else "could not be found"
        return Explanation(state, f"{answer}.")
    if run.release is not None and run.execution is not None:
        free = run.release.text(facts.now)
        answer = f"its execution has ended ({run.execution.status}), and its slot will be free {free}"
        return Explanation(state, f"{answer}.", next_steps=(next_step("holder release", row.execution),))
    stop = next_step("request cancel", found.request_id, process=found.process, stop=True)
    runs = f"its {noun} {run.work['id']} is {run.work['state']}" if run.work else f"no {noun} of it was found"
    answer = f"it has held a slot for {duration(facts.now - run.holder.since)}, and {runs}"
    return Explanation(state, f"{answer}.", next_steps=(stop,))


def explain_new(queue: ProcessQueue, facts: StackFacts) -> Explanation:
    """Why a request of a process would not start if it was sent now."""
    new = queue.of_new()
    reasons = (*(each for each in new.reasons if each.name != "next"), *facts.doorbell)
    expected = queue.expected(new, facts.slot_seconds.get(queue.name, ())) if reasons else None
    return Explanation(RequestState.QUEUED, because(reasons), reasons, new.position, expected, ends_of(reasons))


def lease_reasons(queue: ProcessQueue) -> list[Condition]:
    """Why a lease of a process could not be taken now; empty if it could."""
    return [each for each in queue.of_lease().reasons if each.name != "next"]


def explain_lease(process: Process, name: str, holder: Holder, facts: StackFacts) -> Explanation:
    """Why a lease holds its slot."""
    if holder.until is None:
        raise ValueError(f"{name} is not a lease")
    ends = lease_text(lease_as_dict(holder.until, facts.now))
    answer = f"a block of code holds a slot of {process.name} as this lease for {duration(facts.now - holder.since)}"
    answer += f", and the lease {ends}. No record shows whether the code still runs"
    steps = (next_step("holder release", name),) if holder.has_expired(facts.now) else ()
    return Explanation(RequestState.RUNNING, f"{answer}.", next_steps=steps)
