"""What operators do to a process, each with the wake that belongs to it: whoever makes room wakes who waits."""

from __future__ import annotations

from dataclasses import dataclass

from slotkeeper.slots.cancellation import CancelOutcome
from slotkeeper.slots.process import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next


@dataclass(frozen=True)
class Operations:
    """Live changes of a process. Each takes effect with the next reserve; those that run are left alone.

    Raises LookupError where there is no such process.
    """

    processes: Processes
    slots: Slots
    queue: RequestQueue

    def set_limit(self, process: str, slot_limit: int) -> bool:
        """Changes how many run at once; True if that woke a waiting request. Raises ValueError for a bad limit.

        Lowered below the holders, it admits nobody until enough of them are done.
        """
        self.processes.set_limit(process, slot_limit)
        return wake_next(self.slots, self.queue, process)

    def pause(self, process: str) -> None:
        """Admits nobody until resumed."""
        self.processes.pause(process)

    def resume(self, process: str) -> bool:
        """Lifts the pause; True if that woke a waiting request."""
        self.processes.resume(process)
        return wake_next(self.slots, self.queue, process)

    def remove(self, process: str) -> bool:
        """Removes a process that is paused and of which nobody holds a slot; False, and nothing done, if it is not so.

        What is still queued for it is dead-lettered as UnknownProcess, beginning with whoever waits first.
        """
        item = self.processes.remove(process)
        if item is None:
            return False
        handle = item.get("waiting", {}).get("M", {}).get("receipt_handle", {}).get("S")
        if handle:
            self.queue.make_visible(handle)
        return True

    def cancel_request(self, process: str, execution: str, now: float, by: str = "") -> CancelOutcome:
        """Keeps a queued request from ever starting; the starter sets its message aside, with who did this and when.

        At once if it waits first, else when those before it have started. Safe to repeat.
        """
        outcome, item = self.processes.cancellations.add(process, execution, now, by)
        waiting = item.get("waiting", {}).get("M", {})
        handle, waits = (waiting.get(name, {}).get("S") for name in ("receipt_handle", "execution"))
        # Who waits first may be nameless: a starter of an earlier version registered it. To be woken harms nobody.
        if outcome is CancelOutcome.CANCELLED and handle and waits in (None, execution):
            self.queue.make_visible(handle)
        return outcome
