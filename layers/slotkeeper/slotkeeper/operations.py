"""What operators do to a process, each with the wake that belongs to it: whoever makes room wakes who waits."""

from __future__ import annotations

from dataclasses import dataclass

from slotkeeper.processes import Processes
from slotkeeper.request_queue import RequestQueue, wake_next
from slotkeeper.slots import Slots


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
