"""Operator commands on a process. A command that frees a slot also wakes the waiting request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.cancellation import CancelOutcome
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next


@dataclass(frozen=True)
class Repaired:
    """An item was repaired. `woken`: whether a waiting request was woken."""

    woken: bool


@dataclass(frozen=True)
class Operations:
    """Changes processes while they are in use. A change applies to the next reserve; running workflows continue.

    Each method raises LookupError if the process does not exist.

    Args:
        clock: seconds since the epoch.
    """

    processes: Processes
    slots: Slots
    queue: RequestQueue
    clock: Callable[[], float] = time.time

    def set_limit(self, process: str, slot_limit: int) -> bool:
        """Change the limit; True if that woke a waiting request. Raises ValueError if the limit is not valid.

        Below slots_in_use, no request is admitted until enough holders release. A waiting request whose weight is above
        the limit is blocked until it is raised.
        """
        self.processes.set_limit(process, slot_limit)
        return wake_next(self.slots, self.queue, process, self.clock())

    def pause(self, process: str) -> None:
        """Admit no request until `resume`."""
        self.processes.pause(process)

    def resume(self, process: str) -> bool:
        """Lift the pause; True if that woke a waiting request."""
        self.processes.resume(process)
        return wake_next(self.slots, self.queue, process, self.clock())

    def repair(self, process: str, seen: Item, repaired: Item) -> Repaired | None:
        """Replace the malformed attributes of an item; None, without effect, if any has changed (Processes.repair).

        The message of a registration that is replaced becomes visible, so that it registers again.
        """
        if not self.processes.repair(process, seen, repaired):
            return None
        replaced = _handles(seen).items() - _handles(repaired).items()
        visible = [self.queue.make_visible(handle) for _, handle in sorted(replaced)]
        return Repaired(wake_next(self.slots, self.queue, process, self.clock()) or any(visible))

    def remove(self, process: str) -> bool:
        """Remove a paused process without holders; return False, without effect, for any other process.

        Its queued requests are dead-lettered as UnknownProcess: the heads immediately, since they are woken.
        """
        item = self.processes.remove(process)
        if item is not None:
            self._wake_to_dead_letter(item)
        return item is not None

    def cancel_request(self, process: str, execution: str, now: float, by: str = "") -> CancelOutcome:
        """Cancel a queued request. The starter dead-letters its message with the time and the operator's name.

        It does so immediately if the request is the head of the queue, else when those before it have started. Safe to
        repeat.
        """
        outcome, item = self.processes.cancellations.add(process, execution, now, by)
        if outcome is CancelOutcome.CANCELLED:
            self._wake_to_dead_letter(item, execution)
        return outcome

    def _wake_to_dead_letter(self, item: Mapping[str, Any], execution: str | None = None) -> None:
        """Wake the registered requests, or one of them, whether or not it fits: the starter dead-letters it."""
        for handle in _handles(item, execution).values():
            self.queue.make_visible(handle)


def _handles(item: Mapping[str, Any], execution: str | None = None) -> dict[str, str]:
    """The receipt handle of each registration of an item, or of one execution's, by priority. It may be malformed."""
    handles = {}
    for priority, entry in item.get("waiting", {}).get("M", {}).items():
        registration = entry.get("M", {})
        handle, registered = (registration.get(name, {}).get("S") for name in ("receipt_handle", "execution"))
        if handle and execution in (None, registered):
            handles[priority] = handle
    return handles
