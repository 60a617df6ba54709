"""The waiting requests of a process, from their registrations in SlotTable, and why each of them waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from slotkeeper.slots.admission import EXPIRES_BEFORE
from slotkeeper.slots.cancellation import RETENTION_SECONDS
from slotkeeper.slots.process import MAX_HOLDERS, Process, WaitingRequest, higher
from slotkeeper.slots.queues import MAX_HIDE_SECONDS
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.lease_text import lease_as_dict
from slotkeeper_cli.request_ids import RequestIds

# The age in seconds at which a request has expired, and the longest time until the starter receives it again.
GONE_AFTER = RETENTION_SECONDS - EXPIRES_BEFORE + MAX_HIDE_SECONDS

Cause = Literal["the limit", "a pause", "a higher priority", "nothing", "other requests"]


def waiting_requests(process: Process, now: float) -> list[WaitingRequest]:
    """The registered head of each priority, the highest first, without those that do not wait any more.

    A cancelled or expired request does not wait: the starter dead-letters it. A request that has run may be registered
    again by a redelivery of its message, which only Step Functions shows.
    """
    registered = (process.waiting[each] for each in PRIORITIES if each in process.waiting)
    return [each for each in registered if _waits(process, each, now)]


def _waits(process: Process, waiting: WaitingRequest, now: float) -> bool:
    is_known = waiting.execution in process.holders or waiting.execution in process.cancelled
    return not is_known and now < waiting.since + GONE_AFTER


def ahead_of(process: Process, waiting: WaitingRequest) -> list[WaitingRequest]:
    """The registered requests of higher priorities that get slots before this one, the highest first."""
    registered = (process.waiting[each] for each in higher(waiting.priority) if each in process.waiting)
    return [each for each in registered if not process.is_blocked(each)]


def behind(process: Process, waiting: WaitingRequest) -> Cause:
    """The cause for which a registered request waits, as JSON shows it."""
    if process.is_blocked(waiting):
        return "the limit"
    if process.paused:
        return "a pause"
    if ahead_of(process, waiting):
        return "a higher priority"
    return "nothing" if process.fits(waiting.weight, waiting.token_bytes) else "other requests"


def because(process: Process, waiting: WaitingRequest) -> str:
    """Why a registered request waits, as text."""
    if process.is_blocked(waiting):
        return blocked_text(process, waiting.weight)
    if not process.paused and (ahead := ahead_of(process, waiting)):
        return f"behind the higher priority {ahead[0].priority}: {ahead[0].request_id}"
    return why_full(process, waiting.weight, waiting.token_bytes)


def queue_cause(process: Process, waiting: Sequence[WaitingRequest]) -> dict[str, str]:
    """Why a request of the process's default weight would wait in its queue, as JSON shows it.

    Args:
        waiting: its waiting requests.
    """
    first = next((each for each in waiting if not process.is_blocked(each)), next(iter(waiting), None))
    if first is not None:
        return {"behind": behind(process, first), "because": because(process, first)}
    cause = "a pause" if process.paused else "other requests"
    if process.default_weight > process.slot_limit:
        cause = "the limit"
    return {"behind": cause, "because": why_full(process, process.default_weight)}


def blocked_text(process: Process, weight: int) -> str:
    """Why no request of a weight above the limit starts, as text."""
    if process.slot_limit == 0:
        return "the process has no slots"
    return f"blocked: weight {weight} above the limit {process.slot_limit}"


def why_full(process: Process, weight: int, token_bytes: int = 0) -> str:
    """Why a request of a weight, with a task token of this size, gets no slot while no other request waits, as text."""
    if process.paused:
        return "the process is paused"
    if weight > process.slot_limit:
        return blocked_text(process, weight)
    if process.fits(weight, token_bytes):
        return "a slot is free, and the request is being woken"
    if len(process.holders) >= MAX_HOLDERS:
        return f"the process has {MAX_HOLDERS} holders, which is the maximum"
    if process.fits(weight):
        return "the callers of the requests that hold slots take all of the item's space for task tokens"
    in_use = max(process.slots_in_use, process.held_weight)
    if weight > 1 or in_use > len(process.holders):
        return f"weight {weight} does not fit: {in_use} of {process.slot_limit} in use"
    return "its slot is in use" if process.slot_limit == 1 else f"all {process.slot_limit} slots are in use"


def as_dict(process: Process, waiting: WaitingRequest, now: float) -> dict[str, Any]:
    """A waiting request as JSON shows it."""
    return {
        "priority": waiting.priority,
        "weight": waiting.weight,
        "execution": waiting.execution,
        "request_id": waiting.request_id,
        "since": iso(waiting.since),
        "waited_seconds": int(now - waiting.since),
        "blocked": process.is_blocked(waiting),
        "behind": behind(process, waiting),
        "because": because(process, waiting),
    }


def label(waiting: dict[str, Any]) -> str:
    """A waiting request of `as_dict` as text: `b`, or `b (priority high, weight 5)` unless both have their default."""
    facts = [f"priority {waiting['priority']}"] * (waiting["priority"] != DEFAULT_PRIORITY)
    facts += [f"weight {waiting['weight']}"] * (waiting["weight"] != 1)
    return f"{waiting['request_id']} ({', '.join(facts)})" if facts else str(waiting["request_id"])


def waited(waiting: dict[str, Any]) -> str:
    """A waiting request of `as_dict`, and for how long it has waited, as text."""
    return f"{label(waiting)}, waiting for {duration(waiting['waited_seconds'])}"


def holders_as_dicts(process: Process, request_ids: RequestIds, now: float) -> list[dict[str, Any]]:
    """The holders of a process as JSON shows them, oldest first. The ids of the oldest are searched."""
    oldest = sorted(process.holders.items(), key=lambda entry: entry[1].since)
    ids = request_ids.find([name for name, holder in oldest if not holder.is_lease])
    return [
        {
            "execution": name,
            "request_id": ids.get(name),
            "state": holder.state,
            "weight": holder.weight,
            "since": iso(holder.since),
            "age_seconds": int(now - holder.since),
        }
        | ({} if holder.until is None else lease_as_dict(holder.until, now))
        for name, holder in oldest
    ]
