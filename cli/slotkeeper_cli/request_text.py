"""Why a request is where it is: one sentence, the reasons, the expected start, and what to do next.

Every function decides from its arguments, and makes no call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry.downstream.health import State
from slotkeeper.retry.ledger import Row
from slotkeeper.retry.operations import is_cancelled
from slotkeeper.slots.process import Holder
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.conditions import Condition, because, failing, of_key
from slotkeeper_cli.formatting import count, cut, duration, iso, local_time, seconds
from slotkeeper_cli.holders import lease_as_dict, lease_text
from slotkeeper_cli.requests import WITHOUT_CONTENT, RequestState, failure_of, hide_tokens, is_discarded, state_of
from slotkeeper_cli.retries import line
from slotkeeper_cli.slot_control import add_command

if TYPE_CHECKING:
    from slotkeeper_cli.process_queue import ProcessQueue
    from slotkeeper_cli.request_finder import Run

# Seconds after which the invocation has ended that has reserved a slot and starts its workflow.
STARTER_SECONDS = 60
# By which a schedule may be late: it is accurate to a minute (EventBridge Scheduler guide, "Schedule types"), and its
# call may be repeated.
_SCHEDULER_SECONDS = 120
_RING = "the janitor starts what can start, once a minute"
# Of an error in a sentence: its beginning names it, and its end what to do. The attempt has all of it.
_ERROR_WIDTH = 240
_ENDS = {
    RequestState.SKIPPED: "was skipped",
    RequestState.TOO_LATE: "was too late",
    RequestState.CANCELLED: "was cancelled",
    RequestState.REJECTED: "was rejected",
}


def answer(
    state: RequestState,
    text: str,
    *steps: str,
    reasons: Sequence[Condition] = (),
    turn: Mapping[str, Any] | None = None,
    expected: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The answer to "why?", as JSON shows it.

    Args:
        steps: commands, the first is the usual one; none if there is nothing to do.
        reasons: why it has not started; none for a request that has.
        turn: the request in the queue of its process, as ProcessQueue has it; None if it is in none.
        expected: as `expected_starts` has it; None if something else than time must change before it starts.
    """
    return {
        "state": state,
        "answer": f"{text}.",
        **{name: (turn or {}).get(name) for name in ("position", "ahead", "ahead_of_key")},
        "reasons": [*reasons],
        "expected_start": expected,
        "next": list(steps),
    }


def ends_of(reasons: Sequence[Condition]) -> tuple[str, ...]:
    """The commands that end conditions, each once."""
    return tuple(dict.fromkeys(each["ends_by"] for each in reasons if "ends_by" in each))


def explain_homeless(row: RequestRow, now: float) -> dict[str, Any]:
    """Explain a queued request whose process does not exist."""
    text = f"it has waited for {duration(now - row.sent)}, and its process does not exist: the next dispatch rejects it"
    cancel = next_step("request cancel", row.request_id, process=row.process)
    return answer(RequestState.QUEUED, text, add_command(row.process), cancel)


def explain_queued(
    row: RequestRow, queue: ProcessQueue | None, starts: Mapping[str, Any], doorbell: Sequence[Condition], now: float
) -> dict[str, Any]:
    """Explain a request that is queued.

    Args:
        queue: of its process; None if it could not be read.
        starts: the expected starts of the queue, by execution.
        doorbell: the condition that the starter receives messages of DispatchQueue, if it fails: then only the janitor
            starts requests, and `starts` is empty.
        now: seconds since the epoch.
    """
    state = RequestState.QUEUED
    cancel = next_step("request cancel", row.request_id, process=row.process)
    waited = f"it has waited for {duration(now - row.sent)}"
    if queue is None:
        return answer(state, f"{waited}. Its place in the queue could not be read", cancel)
    entry = queue.find(row.execution)
    if entry is None:
        where = f"behind {queue.number} requests" if queue.is_cut else "and has just left the queue: run this again"
        return answer(state, f"{waited}, {where}", *[cancel] * queue.is_cut)
    reasons = (*entry["reasons"], *doorbell)
    text = f"it is {_place(entry, queue)}, and has waited for {duration(now - row.sent)}"
    text += f": {because(reasons)}" + f"; {_RING}" * bool(doorbell)
    if entry["start_before"]:
        text += f". If it has not started before {local_time(seconds(entry['start_before']))}, it ends as too late"
    expected, steps = starts.get(row.execution), (*ends_of(reasons), cancel)
    return answer(state, text, *steps, reasons=reasons, turn=entry, expected=expected)


def _place(entry: Mapping[str, Any], queue: ProcessQueue) -> str:
    """Where a request is in its queue; if the keys of the queue have turns, first among those of its key."""
    ahead, ahead_of_key = entry["ahead"], entry["ahead_of_key"]
    place = f"one of {queue.number} in the queue" if ahead is None else ""
    if ahead_of_key is None or not queue.has_keys:
        return place or f"number {entry['position']:,} of {queue.number} in the queue"
    in_turn = place or f"in turn {count(ahead, 'request starts', 'requests start')} before it"
    return f"number {ahead_of_key + 1:,} of {of_key(entry['key'] or '')} ({ahead_of_key:,} ahead of it), {in_turn}"


def explain_reserved(row: RequestRow, holder: Holder, doorbell: Sequence[Condition], now: float) -> dict[str, Any]:
    """Explain a queued request that has a slot."""
    age = now - holder.since
    text = f"it has waited for {duration(now - row.sent)}. A slot was reserved for it {duration(age)} ago, and its "
    text += "workflow is being started"
    if age > STARTER_SECONDS:
        text += ". Its starter has probably died: the next dispatch starts it again"
    return answer(RequestState.QUEUED, text, *ends_of(doorbell))


def explain_started(row: RequestRow, run: Run | None, now: float) -> dict[str, Any]:
    """Explain a request that has started. `run`: None if it could not be read."""
    state = RequestState.STARTED
    if run is None:
        return answer(state, "it has started. Whether it still runs could not be read")
    execution = f"is {run.execution.status}" if run.execution else "could not be found"
    if not run.is_read:
        return answer(state, f"its execution {execution}. Whether it holds its slot could not be read")
    has_ended = f"has ended ({run.execution.status})" if run.execution and run.execution.is_closed else ""
    if run.holder is None:
        if run.execution is not None:
            execution = f"{has_ended}. Its end is about to be recorded" if has_ended else "is about to end"
        return answer(state, f"it holds no slot, and its execution {execution}")
    if run.execution is None:
        text = f"it has held a slot for {duration(now - run.holder.since)}, and its execution could not be found"
        return answer(state, text, next_step("holder release", row.execution))
    if run.release is not None:
        text = f"its execution {has_ended}, and its slot will be free {run.release.text(now)}"
        return answer(state, text, next_step("holder release", row.execution))
    noun = kind_of(run.target).work_noun if run.target else "work"
    runs = f"its {noun} {run.work['id']} is {run.work['state']}" if run.work else f"no {noun} of it was found"
    text = f"it has held a slot for {duration(now - run.holder.since)}, and {runs}"
    return answer(state, text, next_step("request cancel", row.request_id, process=row.process, stop=True))


def explain_ended(row: RequestRow, run: Run | None, *, has_process: bool) -> dict[str, Any]:
    """Explain a request that has ended."""
    state = state_of(row.state)
    end = f"attempt {row.attempt} {_ENDS.get(state, state)}" + (f" at {local_time(row.ended)}" if row.ended else "")
    after = ", and is about to release its slot" if run and run.holder else ""
    if row.is_unpublished:
        after += ". Its end is not published yet, so a caller that waits has no answer: the janitor repeats it"
    match state:
        case RequestState.SUCCEEDED:
            work = f": {kind_of(run.target).work_noun} {run.work['id']} {run.work['state']}" if run and run.work else ""
            return answer(state, f"{end}{work}{after}")
        case RequestState.RETURNED | RequestState.REDRIVEN:
            return answer(state, f"{end}. Its next attempt was queued a moment ago: run this again")
    code = f" ({row.code})" if row.code else ""
    text = f"{end}{code}: {cut(hide_tokens(failure_of(row)), _ERROR_WIDTH)}".rstrip(".: ") + after
    if row.code in WITHOUT_CONTENT or is_discarded(row):
        text += ". It was discarded" * is_discarded(row)
        return answer(state, text, next_step("request submit", process=row.process, request_id=ToFillIn("A_NEW_ID")))
    later = ToFillIn("HH:MM") if state is RequestState.TOO_LATE else None
    redrive = next_step("failed redrive", row.request_id, process=row.process, start_before=later)
    return answer(state, text, *[add_command(row.process)] * (not has_process), redrive)


def timeline(row: RequestRow, now: float, waits: str = "", runs: str = "") -> list[dict[str, Any]]:
    """The events of an attempt, in order.

    Each has `what`: sent, waited, started, ended or published; `at`: its time or its begin in ISO 8601, None if that is
    not recorded; `for_seconds`: for how long, until now if it continues, None if that is not known; and `why`.

    Args:
        waits: why it has not started.
        runs: its work, which runs or has ended.
    """
    end = now if row.ended is None else row.ended
    is_start_unknown = row.started is None and row.state in ("SUCCEEDED", "FAILED")  # it had ended before the mark
    waited = None if is_start_unknown else (row.started or end) - row.sent
    events: list[tuple[str, float | None, float | None, str]] = [("sent", row.sent, 0, "")]
    events.append(("waited", row.sent, waited, "its start was not recorded" if is_start_unknown else waits))
    if row.started is not None:
        events.append(("started", row.started, end - row.started, runs))
    if row.ended is not None:
        code = f"{row.code}: " if row.code else ""
        why = f"{state_of(row.state)}: {code}{hide_tokens(failure_of(row))}".rstrip(": ")
        events.append(("ended", row.ended, 0, why))
        if row.state not in ("RETURNED", "REDRIVEN"):
            events.append(("published", None, 0, "not yet: the janitor repeats it" if row.is_unpublished else ""))
    return [
        {
            "what": what,
            "at": None if at is None else iso(at),
            "for_seconds": None if lasted is None else max(0, round(lasted)),
            "why": why,
        }
        for what, at, lasted, why in events
    ]


def explain_new(
    queue: ProcessQueue, starts: Mapping[str, Any], event_sources: Sequence[Condition], unaccepted: int
) -> dict[str, Any]:
    """Why a request of a process would not start if it was sent now.

    Args:
        queue: with that request.
        starts: the expected starts of that queue, by execution.
        event_sources: the condition that the starter receives messages, if it fails.
        unaccepted: how many messages of requests, of any process, have no row yet.
    """
    new = queue.find()
    if new is None:
        raise ValueError("the queue has no new request")
    reasons = (*(each for each in new["reasons"] if each["condition"] != "next"), *event_sources)
    text = because(reasons) or ("nothing that was read" if unaccepted else "nothing") + " keeps it from starting"
    expected = starts.get(new["execution"]) if reasons and not event_sources else None
    steps = ends_of(reasons)
    return answer(RequestState.QUEUED, text, *steps, reasons=reasons, turn=new, expected=expected)


def explain_lease(name: str, process: str, holder: Holder, now: float) -> dict[str, Any]:
    """Why a lease holds its slot."""
    ends = lease_text(lease_as_dict(holder.until or 0, now))
    text = f"a block of code holds a slot of {process} as this lease for {duration(now - holder.since)}, and the "
    text += f"lease {ends}. No record shows whether the code still runs"
    return answer(RequestState.RUNNING, text, *[next_step("holder release", name)] * holder.has_expired(now))


def downstream_conditions(details: Mapping[str, Any], now: float) -> list[Condition]:
    """The conditions of an attempt that a downstream's state lets fail.

    Args:
        details: as `retries.details` returns them.
        now: seconds since the epoch.
    """
    name, limit, under_way = details["downstream"], details["permitted_callers"], details["under_way"]
    found = []
    if details["state"] != State.CLOSED:
        # A probe closes it once the downstream works: the operator can only see what it waits for.
        ends_by = next_step("retry breaker show", name)
        if details["forced_open"]:
            ends_by = next_step("retry breaker close", name, why=ToFillIn("TEXT"))
        found.append(failing("breaker", line(details, now), ends_by, downstream=name, state=details["state"]))
    elif limit is not None and under_way is not None and under_way >= limit:
        text = f"downstream {name}: {under_way} of {count(limit, 'permitted caller')} under way"
        found.append(failing("concurrency", text, downstream=name, under_way=under_way, limit=limit))
    if details["allowed_retries"] == 0:
        text = f"downstream {name}: the retry budget is used up; successes and time return it"
        found.append(failing("budget", text, downstream=name, capacity=details["budget_capacity"]))
    return found


def work_state(row: Row) -> RequestState:
    """The state of a request of the worker."""
    return RequestState.CANCELLED if is_cancelled(row) else RequestState(row.status.lower().replace("_", "-"))


def explain_work(request_id: str, row: Row, conditions: Sequence[Condition], now: float) -> dict[str, Any]:
    """Explain a request of the worker.

    Args:
        conditions: of an attempt, that fail: of its downstream, and that the worker receives messages.
        now: seconds since the epoch.
    """
    state, error = work_state(row), cut(row.last_error, _ERROR_WIDTH)
    attempt, steps = f"attempt {row.attempts}", tuple[str, ...]()
    match state:
        case RequestState.CANCELLED:
            text = "its retry was cancelled: it is dead-lettered when its message is delivered"
        case RequestState.WAITING:
            text = f"{attempt} failed ({error}){_next_attempt(row, conditions, now)}"
            # A message that is sent now would be held back too, or received by no worker.
            run_now = [] if conditions else [next_step("retry run-now", request_id)]
            steps = (*ends_of(conditions), *run_now, next_step("retry cancel", request_id))
        case RequestState.RUNNING:
            again = f"If its worker has died, it is made again after {local_time(row.lease_until)}"
            text = f"{attempt} started at {local_time(row.last_attempt_at)}. {again}"
        case RequestState.FAILED:
            text = f"{attempt} failed ({error}), and the next delivery of its message carries out what was decided"
        case RequestState.DEAD_LETTERED:
            text = f"{count(row.attempts, 'attempt')} made, then dead-lettered: {error.rstrip('.')}. Its message is in "
            text += "WorkDeadLetterQueue for 14 days, unless it was redriven or discarded"
            steps = (next_step("dlq redrive", "work", id=request_id),)
        case _:
            text = f"{attempt} {state}"
    return answer(state, text, *steps, reasons=conditions)


def _next_attempt(row: Row, conditions: Sequence[Condition], now: float) -> str:
    if row.next_attempt_at is None:
        return ", and the time of the next one is not recorded"
    due = local_time(row.next_attempt_at)
    if row.next_attempt_at > now:
        return f". Attempt {row.attempts + 1} is due in {duration(row.next_attempt_at - now)}, at {due}"
    late = now - row.next_attempt_at
    where = "its message is in WorkQueue or with EventBridge Scheduler, which delivers up to two minutes late"
    if late > _SCHEDULER_SECONDS:
        where = f"its message is in WorkQueue, or was dead-lettered: {next_step('dlq list')}"
    return f". Attempt {row.attempts + 1} was due {duration(late)} ago, at {due}: {because(conditions) or where}"
