"""Why a request has not started: the conditions of a start that fail, each with its values. Makes no call.

They are the conditions of the starter's write (`Slots.reserve`). `status`, `request show` and `explain` read this one
list, so that they give one reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.next_step import next_step
from slotkeeper.slots.admission import EXPIRES_BEFORE
from slotkeeper.slots.process import (
    MAX_HIDE_SECONDS,
    MAX_HOLDERS,
    MAX_TOKEN_BYTES,
    RETENTION_SECONDS,
    Process,
    WaitingRequest,
    higher,
)
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, Position, Priority
from slotkeeper.slots.targets import NO_TARGET
from slotkeeper_cli.formatting import count, duration, iso, local_time, seconds
from slotkeeper_cli.holders import holder_as_dict
from slotkeeper_cli.request_ids import RequestIds

NO_MESSAGE = "RequestQueue has no message: it was deleted or purged, unless SQS's approximate count lags"
WOKEN = "a slot is free, and the request is being woken"
# The age in seconds at which a request has expired, and the longest time until the starter receives it again.
GONE_AFTER = RETENTION_SECONDS - EXPIRES_BEFORE + MAX_HIDE_SECONDS


@dataclass(frozen=True)
class Condition:
    """A condition of a start that fails.

    Args:
        name: for programs: `pause`, `limit`, `slots`, `rate`, `holders`, `task tokens`, `priority`, `queue`,
            `target`, `cancelled`, `message`, `event source` or `malformed process`; of the worker `breaker`,
            `concurrency` or `budget`.
        text: for people, with the values.
        values: the numbers and names in the text.
        ends_by: the command that ends it; empty if it ends without an operator.
    """

    name: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    ends_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The condition as JSON shows it."""
        return {"condition": self.name, "text": self.text, **self.values} | (
            {"ends_by": self.ends_by} if self.ends_by else {}
        )


def failing(
    process: Process,
    weight: int,
    priority: Priority,
    position: Position | None = None,
    token_bytes: int = 0,
    execution: str = "",
    *,
    now: float,
) -> list[Condition]:
    """The conditions that keep a request of a process from starting, the decisive ones first; empty if it can start.

    Args:
        position: of its last delivery. None: it has not been received, so each registered request of its priority is
            before it.
        token_bytes: the size of its task token.
        now: seconds since the epoch.
    """
    found = [*_never(process, execution), *_by_operator(process, weight)]
    if weight <= process.slot_limit:
        found += _occupied(process, weight)
    found += _early(process, now)
    if len(process.holders) >= MAX_HOLDERS:
        text = f"the process has {len(process.holders)} holders, which is the maximum"
        found.append(Condition("holders", text, {"holders": len(process.holders), "maximum": MAX_HOLDERS}))
    if not process.takes_token(token_bytes):
        text = "the callers of the requests that hold slots take all of the item's space for task tokens"
        values = {"token_bytes": token_bytes, "token_bytes_in_use": process.token_bytes, "maximum": MAX_TOKEN_BYTES}
        found.append(Condition("task tokens", text, values))
    ahead = [each for each in counting(process, higher(priority)) if each.execution != execution]
    if ahead:
        text = f"behind the higher priority {ahead[0].priority}: {ahead[0].request_id}"
        found.append(Condition("priority", text, {"ahead": [each.request_id for each in ahead]}))
    own = process.waiting.get(priority)
    if own is not None and own.execution != execution and (position is None or own.position > position):
        text = f"behind the first request of its priority: {own.request_id}"
        found.append(Condition("queue", text, {"ahead": [own.request_id]}))
    return found


def of_waiting(process: Process, waiting: WaitingRequest, now: float) -> list[Condition]:
    """The conditions that keep a registered request from starting. `now`: seconds since the epoch."""
    position, execution = waiting.position, waiting.execution
    return failing(process, waiting.weight, waiting.priority, position, waiting.token_bytes, execution, now=now)


def because(conditions: Sequence[Condition]) -> str:
    """Why a request has not started, as one text."""
    return "; ".join(each.text for each in conditions) or WOKEN


def counting(process: Process, priorities: Iterable[Priority]) -> Iterator[WaitingRequest]:
    """The registered requests of these priorities that keep later ones out: those that are not above the limit."""
    registered = (process.waiting[each] for each in priorities if each in process.waiting)
    return (each for each in registered if not process.is_blocked(each))


def _never(process: Process, execution: str) -> Iterator[Condition]:
    """The conditions that do not end by waiting: the starter dead-letters the request when it receives it."""
    if note := process.cancelled.get(execution):
        by = f" by {note.by}" if note.by else ""
        yield Condition("cancelled", f"it is cancelled{by}", {"by": note.by})
    if process.target == NO_TARGET:
        text = "the process is for leases only, and runs no request: it is dead-lettered when it is received"
        yield Condition("target", text, {"target": process.target})


def _by_operator(process: Process, weight: int) -> Iterator[Condition]:
    if process.paused:
        yield Condition("pause", "the process is paused", {}, next_step("process resume", process.name))
    if weight > process.slot_limit:
        text = f"blocked: weight {weight} above the limit {process.slot_limit}"
        if process.slot_limit == 0:
            text = "the process has no slots"
        values = {"weight": weight, "slot_limit": process.slot_limit}
        yield Condition("limit", text, values, next_step("process set-limit", process.name, weight))


def _occupied(process: Process, weight: int) -> Iterator[Condition]:
    in_use = max(process.slots_in_use, process.held_weight)
    if in_use + weight <= process.slot_limit:
        return
    holders = count(len(process.holders), "holder")
    if weight > 1 or in_use != len(process.holders):
        text = f"weight {weight} does not fit: {in_use} of {process.slot_limit} in use by {holders}"
    else:
        text = f"{in_use} of {count(process.slot_limit, 'slot')} in use"
    values = {"weight": weight, "slots_in_use": in_use, "slot_limit": process.slot_limit}
    values |= {"holders": len(process.holders)}
    ends_by = ""
    if process.slots_in_use > process.held_weight:
        text += f", by a counter that is {process.slots_in_use - process.held_weight} too high"
        values["held_weight"] = process.held_weight
        ends_by = next_step("stack reconcile", process.name)
    yield Condition("slots", text, values, ends_by)


def _early(process: Process, now: float) -> Iterator[Condition]:
    if not process.is_due(now):
        text = f"the rate of {process.rate} permits the next start in {process.seconds_until_due(now):.1f} s"
        yield Condition("rate", text, {"rate": str(process.rate), "due": iso(process.due / 1000)})


def stopped_event_source(mappings: Sequence[Mapping[str, Any]]) -> list[Condition]:
    """The condition that a function receives the messages of a queue, if it fails; empty otherwise.

    Args:
        mappings: the queue's event source mappings (Lambda API Reference, EventSourceMappingConfiguration).
    """
    if not mappings:
        return [Condition("event source", "no function receives messages of the queue: deploy the stack again")]
    stopped = [each for each in mappings if each["State"] in ("Disabling", "Disabled")]
    return [
        Condition(
            "event source",
            f"no function receives messages of the queue: its event source mapping is {each['State']}",
            {"state": each["State"], "uuid": each["UUID"]},
            f"aws lambda update-event-source-mapping --enabled --uuid {each['UUID']}",
        )
        for each in stopped
    ]


def missing_message(queued: int) -> list[Condition]:
    """The condition that the message of a registered request exists, if it fails.

    Args:
        queued: the number of messages of RequestQueue, also hidden ones.
    """
    return [] if queued else [Condition("message", NO_MESSAGE, {"queued_messages": 0})]


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
    conditions = [*of_queue, *of_waiting(process, waiting, now)]
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
    } | ({} if waiting.start_before is None else {"start_before": iso(waiting.start_before)})


def label(waiting: dict[str, Any]) -> str:
    """A waiting request of `as_dict` as text: `b`, or `b (priority high, weight 5)` unless both have their default."""
    facts = [f"priority {waiting['priority']}"] * (waiting["priority"] != DEFAULT_PRIORITY)
    facts += [f"weight {waiting['weight']}"] * (waiting["weight"] != 1)
    return f"{waiting['request_id']} ({', '.join(facts)})" if facts else str(waiting["request_id"])


def waited(waiting: dict[str, Any]) -> str:
    """A waiting request of `as_dict`, for how long it has waited, and until when it may start, as text."""
    text = f"{label(waiting)}, waiting for {duration(waiting['waited_seconds'])}"
    if start_before := waiting.get("start_before"):
        text += f", to start before {local_time(seconds(start_before))}"
    return text


def holders_as_dicts(process: Process, request_ids: RequestIds, now: float) -> list[dict[str, Any]]:
    """The holders of a process as JSON shows them, oldest first. The ids of the oldest are searched."""
    oldest = sorted(process.holders.items(), key=lambda entry: entry[1].since)
    ids = request_ids.find([name for name, holder in oldest if not holder.is_lease])
    return [holder_as_dict(name, holder, ids.get(name), now) for name, holder in oldest]
