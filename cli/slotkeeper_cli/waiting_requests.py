"""The first waiting request of a process, from its registration in SlotTable, and why it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.admission import EXPIRES_BEFORE
from slotkeeper.slots.cancellation import RETENTION_SECONDS
from slotkeeper.slots.process import Process
from slotkeeper.slots.queues import MAX_HIDE_SECONDS
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.request_ids import RequestIds

# The age in seconds at which a request has expired, and the longest time until the starter receives it again.
GONE_AFTER = RETENTION_SECONDS - EXPIRES_BEFORE + MAX_HIDE_SECONDS


@dataclass(frozen=True)
class FirstWaiting:
    """The head of a process's queue, which was refused a slot. `since`: when it was sent, in seconds since the epoch.

    `execution` and `request_id` are None if a starter of an earlier version registered it.
    """

    execution: str | None
    request_id: str | None
    since: float

    @property
    def label(self) -> str:
        """Its request id, or else its execution name."""
        return self.request_id or self.execution or "a request"

    def waited(self, now: float) -> str:
        """Its name and for how long it has waited, as text."""
        return f"{self.label}, waiting for {duration(now - self.since)}"

    def as_dict(self, now: float) -> dict[str, Any]:
        """The request as JSON shows it."""
        return {
            "execution": self.execution,
            "request_id": self.request_id,
            "since": iso(self.since),
            "waited_seconds": int(now - self.since),
        }


def first_waiting(process: Process, now: float) -> FirstWaiting | None:
    """The request of the process's registration; None if there is none, or if the request does not wait any more.

    A registration stays in the item until another request waits, or until the janitor finds a slot free and the message
    deleted. The request does not wait any more if it holds a slot, was cancelled, or has expired: the starter
    dead-letters the last two. It may also have run already, which only Step Functions shows.
    """
    execution, since = process.waiting_execution, process.waiting_since
    if since is None or now >= since + GONE_AFTER:
        return None
    if execution is not None and (execution in process.holders or execution in process.cancelled):
        return None
    return FirstWaiting(execution, process.waiting_request_id, since)


def behind(process: Process) -> str:
    """The cause for which the first waiting request of a process waits, as JSON shows it."""
    if process.paused:
        return "a pause"
    return "nothing" if process.has_free_slot else "other requests"


def because(process: Process) -> str:
    """Why the first waiting request of a process waits, as text."""
    if process.paused:
        return "the process is paused"
    if process.has_free_slot:
        return "a slot is free, and the request is being woken"
    if process.slot_limit == 0:
        return "the process has no slots"
    return "its slot is in use" if process.slot_limit == 1 else f"all {process.slot_limit} slots are in use"


def holders_as_dicts(process: Process, request_ids: RequestIds, now: float) -> list[dict[str, Any]]:
    """The holders of a process as JSON shows them, oldest first. The ids of the oldest are searched."""
    oldest = sorted(process.holders.items(), key=lambda entry: entry[1].since)
    ids = request_ids.find([name for name, _ in oldest])
    return [
        {
            "execution": name,
            "request_id": ids.get(name),
            "state": holder.state,
            "since": iso(holder.since),
            "age_seconds": int(now - holder.since),
        }
        for name, holder in oldest
    ]
