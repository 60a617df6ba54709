"""A request of the worker: its row in RequestLedgerTable, its dead-letter message, and why it is where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry import ledger
from slotkeeper.retry.downstream.health import State
from slotkeeper.retry.ledger import Ledger, Row
from slotkeeper.retry.operations import is_cancelled
from slotkeeper_cli.conditions import Condition
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, read_dead_letters
from slotkeeper_cli.explanation import Explanation, ends_of
from slotkeeper_cli.formatting import count, duration, iso, local_time, one_line
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.retries import line
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.unread import Search

WORK_QUEUES = (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE)
_STATES = {
    ledger.RUNNING: RequestState.RUNNING,
    ledger.FAILED: RequestState.FAILED,
    ledger.WAITING: RequestState.WAITING,
    ledger.SUCCEEDED: RequestState.SUCCEEDED,
    ledger.DEAD_LETTERED: RequestState.DEAD_LETTERED,
}


@dataclass(frozen=True)
class FoundWork:
    """A request of the worker. `row` is None if only its dead-letter message is known."""

    request_id: str
    row: Row | None
    dlq_message: DeadLetterMessage | None

    @property
    def state(self) -> RequestState:
        if self.row is None:
            return RequestState.DEAD_LETTERED
        return RequestState.CANCELLED if is_cancelled(self.row) else _STATES[self.row.status]

    def as_dict(self) -> dict[str, Any]:
        """The request as JSON shows it."""
        data: dict[str, Any] = {"request_id": self.request_id, "state": self.state}
        if (row := self.row) is not None:
            data |= {
                "attempts": row.attempts,
                "last_attempt_at": iso(row.last_attempt_at),
                "next_attempt_at": None if row.next_attempt_at is None else iso(row.next_attempt_at),
                "last_error": row.last_error,
                "history": [dict(entry) for entry in row.history],
            }
        if self.dlq_message is not None:
            data["dead_letter"] = {"queue": self.dlq_message.queue.full_name, **self.dlq_message.summary()}
        return data


def is_deployed(stack: StackConnection) -> bool:
    """Whether the stack has the worker."""
    return "RequestLedgerTableName" in stack.outputs


def find_work(stack: StackConnection, search: Search, given: str, *, search_dead_letters: bool) -> FoundWork | None:
    """The worker's request with an id; None if there is none.

    Args:
        given: the id of the request, or the message id of its dead-letter message.
        search_dead_letters: read the dead-letter queues also if the ledger does not know the request, as for a message
            that was malformed. They are read in any case for a request that was dead-lettered.

    Raises:
        MalformedRow: the request's row does not have the documented types.
    """
    rows = Ledger(stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"])
    row = rows.read(given)
    has_message = search_dead_letters if row is None else row.status in (ledger.FAILED, ledger.DEAD_LETTERED)
    message = _dead_letter(stack, search, given) if has_message else None
    if row is not None or message is None:
        return None if row is None else FoundWork(given, row, message)
    request_id = message.request_id or given
    return FoundWork(request_id, None if request_id == given else rows.read(request_id), message)


def _dead_letter(stack: StackConnection, search: Search, given: str) -> DeadLetterMessage | None:
    return next((one for one in read_dead_letters(stack, search, WORK_QUEUES) if one.is_named(given)), None)


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
        ends_by = (
            next_step("retry breaker close", name, why=ToFillIn("TEXT"))
            if details["forced_open"]
            else next_step("retry breaker show", name)
        )
        found.append(Condition("breaker", line(details, now), {"downstream": name, "state": details["state"]}, ends_by))
    elif limit is not None and under_way is not None and under_way >= limit:
        text = f"downstream {name}: {under_way} of {count(limit, 'permitted caller')} under way"
        found.append(Condition("concurrency", text, {"downstream": name, "under_way": under_way, "limit": limit}))
    if details["allowed_retries"] == 0:
        text = f"downstream {name}: the retry budget is used up; successes and time return it"
        found.append(Condition("budget", text, {"downstream": name, "capacity": details["budget_capacity"]}))
    return found


def explain_work(
    found: FoundWork, downstream: Sequence[Condition], event_source: Sequence[Condition], now: float
) -> Explanation:
    """Explain a request of the worker.

    Args:
        downstream: the conditions of its downstream that fail.
        event_source: the condition that the worker receives messages, if it fails.
        now: seconds since the epoch.
    """
    row, state, request_id = found.row, found.state, found.request_id
    conditions = (*event_source, *downstream)
    if state is RequestState.WAITING and row is not None:
        # A message that is sent now would be held back too, or received by no worker.
        run_now = () if conditions else (next_step("retry run-now", request_id),)
        steps = (*ends_of(conditions), *run_now, next_step("retry cancel", request_id))
        return Explanation(state, _waiting(row, conditions, now), conditions, next_steps=steps)
    if state is RequestState.RUNNING and row is not None:
        started, until = local_time(row.last_attempt_at), local_time(row.lease_until)
        answer = f"attempt {row.attempts} started at {started}. If its worker has died, it is made again after {until}."
        return Explanation(state, answer)
    if state in (RequestState.DEAD_LETTERED, RequestState.FAILED):
        message = found.dlq_message
        reason = (message.reason if message else "") or (row.last_error if row else "")
        answer = f"{count(row.attempts, 'attempt')} made, then {state}: {one_line(reason)}" if row else one_line(reason)
        if message is None:
            return Explanation(
                state,
                f"{answer}. No dead-letter message of it was found: its worker carries out the "
                "decision with the next delivery, or the message was redriven, deleted or has expired.",
            )
        redrive = next_step("dlq redrive", message.queue, id=request_id)
        return Explanation(
            state, f"{answer}. It is in {message.queue.full_name} ({message.code}).", next_steps=(redrive,)
        )
    if state is RequestState.CANCELLED:
        return Explanation(state, "its retry was cancelled: it is dead-lettered when its message is delivered.")
    return Explanation(state, f"attempt {row.attempts if row else 'unknown'} {state}.")


def _waiting(row: Row, conditions: Sequence[Condition], now: float) -> str:
    failed = f"attempt {row.attempts} failed ({one_line(row.last_error)})"
    if row.next_attempt_at is None:
        return f"{failed}, and the time of the next one is not recorded."
    due = local_time(row.next_attempt_at)
    if row.next_attempt_at > now:
        return f"{failed}. Attempt {row.attempts + 1} is due in {duration(row.next_attempt_at - now)}, at {due}."
    late = f"{failed}. Attempt {row.attempts + 1} was due {duration(now - row.next_attempt_at)} ago, at {due}"
    if conditions:
        return f"{late}: {'; '.join(each.text for each in conditions)}."
    return f"{late}: its message is in WorkQueue or with EventBridge Scheduler, which delivers up to two minutes late."
