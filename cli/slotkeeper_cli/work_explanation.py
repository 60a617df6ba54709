"""Why a request of the worker is where it is. Decides from what was read before, and makes no call."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from slotkeeper.retry.downstream.health import State
from slotkeeper.retry.ledger import Row
from slotkeeper_cli.conditions import Condition
from slotkeeper_cli.downstream_text import line
from slotkeeper_cli.explanation import Explanation
from slotkeeper_cli.formatting import count, duration, local_time, one_line
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.work_finder import FoundWork


def downstream_conditions(details: Mapping[str, Any], now: float) -> list[Condition]:
    """The conditions of an attempt that a downstream's state lets fail.

    Args:
        details: as `downstream_text.details` returns them.
        now: seconds since the epoch.
    """
    name, limit, under_way = details["downstream"], details["permitted_callers"], details["under_way"]
    found = []
    if details["state"] != State.CLOSED:
        ends_by = f"slotkeeper retry breaker close {shlex.quote(name)} --why TEXT" if details["forced_open"] else ""
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
    row, state, request_id = found.row, found.state, shlex.quote(found.request_id)
    conditions = (*event_source, *downstream)
    if state is RequestState.WAITING and row is not None:
        steps = (f"slotkeeper retry run-now {request_id}", f"slotkeeper retry cancel {request_id}")
        ends = tuple(each.ends_by for each in conditions if each.ends_by)
        return Explanation(state, _waiting(row, conditions, now), conditions, next_steps=(*ends, *steps))
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
        redrive = f"slotkeeper dlq redrive {message.queue} --id {request_id}"
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
