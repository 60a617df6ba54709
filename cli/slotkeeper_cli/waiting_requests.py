"""The waiting requests of a process, from their registrations in SlotTable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slotkeeper.slots.admission import EXPIRES_BEFORE
from slotkeeper.slots.process import RETENTION_SECONDS, Process, WaitingRequest, higher
from slotkeeper.slots.queues import MAX_HIDE_SECONDS
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES
from slotkeeper_cli.conditions import Condition, because, counting, of_waiting
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.lease_text import lease_as_dict
from slotkeeper_cli.request_ids import RequestIds

# The age in seconds at which a request has expired, and the longest time until the starter receives it again.
GONE_AFTER = RETENTION_SECONDS - EXPIRES_BEFORE + MAX_HIDE_SECONDS


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
    return list(counting(process, higher(waiting.priority)))


def as_dict(
    process: Process, waiting: WaitingRequest, now: float, of_queue: Sequence[Condition] = ()
) -> dict[str, Any]:
    """A waiting request as JSON shows it.

    Args:
        of_queue: the conditions of all requests that fail.
    """
    conditions = [*of_queue, *of_waiting(process, waiting)]
    return {
        "priority": waiting.priority,
        "weight": waiting.weight,
        "execution": waiting.execution,
        "request_id": waiting.request_id,
        "since": iso(waiting.since),
        "waited_seconds": int(now - waiting.since),
        "blocked": process.is_blocked(waiting),
        "conditions": [each.as_dict() for each in conditions],
        "because": because(conditions),
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
