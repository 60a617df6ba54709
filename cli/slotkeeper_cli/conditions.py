"""Why a request has not started: the reasons of `plan` in words, each with its values and what ends it. Makes no call.

This is the only place of these words, so that all commands and the console give one reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotkeeper.next_step import next_step
from slotkeeper.printable import printable
from slotkeeper.slots.plan import (
    Behind,
    Blocked,
    InPause,
    KeyBlocked,
    KeyFull,
    NextRound,
    NoRoom,
    Reason,
    Starting,
    Stopped,
    TooEarly,
    TooManyHolders,
)
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.formatting import count, iso

Condition = dict[str, Any]  # of a start, that fails, as JSON shows it


def failing(name: str, text: str, ends_by: str = "", **values: Any) -> Condition:
    """A condition of a start that fails.

    Args:
        name: for programs, as docs/json.md lists them.
        text: for people, with the values.
        ends_by: the command that ends it; empty if it ends without an operator.
        values: the numbers and names in the text.
    """
    return {"condition": name, "text": text, **values} | ({"ends_by": ends_by} if ends_by else {})


CAN_START = failing("next", "it can start, and a dispatch is about to start it")
LEAVES = {
    "SKIPPED": failing("skip", "it cannot start now, and is about to be skipped"),
    "TOO_LATE": failing("too late", "its start_before has passed, and it is about to end as too late"),
}
NOT_ALL_READ = failing("queue", "more requests are queued than were read, so whose turn is next is not known")
LEASES_ONLY = failing("target", "the process is for leases only: it runs no request, and rejects those that are sent")


def condition_of(
    reason: Reason, process: Process, now: float, ids: Mapping[str, str], first: Reason | None = None
) -> Condition:
    """A reason of `plan` in words.

    Args:
        now: seconds since the epoch.
        ids: execution -> request id, of the queued requests.
        first: of a request that is Behind another one, the reason of that one.
    """
    match reason:
        case Starting():
            return failing("starting", "a slot is reserved for it, and its workflow is being started")
        case NextRound():
            return CAN_START
        case InPause():
            return failing("pause", "the process is paused", next_step("process resume", process.name))
        case Stopped():
            raised = next_step("process set-limit", process.name, process.default_weight)
            return failing("limit", "the process has no slots", raised, slot_limit=0)
        case Blocked(weight, slot_limit):
            text = f"blocked: weight {weight} above the limit {slot_limit}"
            raised = next_step("process set-limit", process.name, weight)
            return failing("limit", text, raised, weight=weight, slot_limit=slot_limit)
        case KeyBlocked(key, weight, key_limit):
            text = f"blocked: weight {weight} above the limit {key_limit} of {of_key(key)}"
            raised = next_step("process set-key-limit", process.name, weight, key=key or None)
            return failing("key limit", text, raised, key=key or None, weight=weight, key_limit=key_limit)
        case KeyFull(key, weight, room):
            return _key_is_full(process, key, weight, room)
        case NoRoom(weight, room):
            return _occupied(process, weight, room)
        case TooManyHolders(most):
            text = f"the process has {len(process.holders)} holders, which is the maximum"
            return failing("holders", text, holders=len(process.holders), maximum=most)
        case TooEarly(due):
            left = max(0.0, due / 1000 - now)
            text = f"the rate of {process.rate} permits the next start in {left:.1f} s"
            return failing("rate", text, rate=str(process.rate), due=iso(due / 1000))
        case Behind(name):
            request_id = ids.get(name, name)
            of = f" of {of_key(first.key)}" if isinstance(first, KeyFull) else ""
            return failing("queue", f"behind {request_id}, which is next{of}", first=request_id)


def of_key(key: str) -> str:
    """A key as text: `key "acme"`, or `requests without a key`."""
    return f'key "{printable(key)}"' if key else "requests without a key"


def _key_is_full(process: Process, key: str, weight: int, room: int) -> Condition:
    key_limit = process.limit_of(key) or 0
    in_use = process.held_by_key.get(key, 0)
    text = f"{in_use} of {key_limit} slots of {of_key(key)} in use"
    if weight > 1:
        text = f"weight {weight} does not fit: {text}"
    if taken := key_limit - in_use - room:
        text += f", and {taken} for requests before it, which can start"
    return failing("key slots", text, key=key or None, weight=weight, key_in_use=in_use, key_limit=key_limit)


def _occupied(process: Process, weight: int, room: int) -> Condition:
    in_use, holders = process.slot_limit - process.room, count(len(process.holders), "holder")
    if weight > 1 or in_use != len(process.holders):
        text = f"weight {weight} does not fit: {in_use} of {process.slot_limit} in use by {holders}"
    else:
        text = f"{in_use} of {count(process.slot_limit, 'slot')} in use"
    if taken := process.room - room:
        text += f", and {taken} for requests before it, which can start"
    values: dict[str, Any] = {"weight": weight, "slots_in_use": in_use, "slot_limit": process.slot_limit}
    values["holders"] = len(process.holders)
    if process.slots_in_use > process.held_weight:
        text += f", by a counter that is {process.slots_in_use - process.held_weight} too high"
        values |= {"held_weight": process.held_weight, "ends_by": next_step("stack reconcile", process.name)}
    return failing("slots", text, **values)


def malformed_process(error: MalformedProcess) -> Condition:
    """The condition that the item of a process can be read."""
    text = f"the item of process {error.process} is malformed, so no request of it starts: {error}"
    return failing("malformed process", text, next_step("process repair", error.process), error=str(error))


def because(conditions: Sequence[Condition]) -> str:
    """Why a request has not started, as one text."""
    return "; ".join(each["text"] for each in conditions)


def stopped_event_source(queue: str, mappings: Sequence[Mapping[str, Any]]) -> list[Condition]:
    """The condition that a function receives the messages of a queue, if it fails; empty otherwise.

    Args:
        mappings: the queue's event source mappings (Lambda API Reference, EventSourceMappingConfiguration).
    """
    if not mappings:
        text = f"no function receives messages of {queue}: deploy the stack again"
        return [failing("event source", text, queue=queue)]
    stopped = [each for each in mappings if each["State"] in ("Disabling", "Disabled")]
    return [
        failing(
            "event source",
            f"no function receives messages of {queue}: its event source mapping is {each['State']}",
            f"aws lambda update-event-source-mapping --enabled --uuid {each['UUID']}",
            queue=queue,
            state=each["State"],
            uuid=each["UUID"],
        )
        for each in stopped
    ]
