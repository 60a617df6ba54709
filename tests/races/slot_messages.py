"""The messages of a race. The sequence number determines the request, so that clients deliver the same messages."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dev.judge.slot_item import Asked
from slotkeeper.slots.protocol import Candidate
from slotkeeper.slots.request import Delivery, Priority

INTERVAL = 50_000_000  # nanoseconds between two messages
_OLDEST = 30  # messages
_MOST_RECEIVES = 3


class Message(NamedTuple):
    """One receive of a message.

    `weight` 0 means the process's default weight. `sequence` 0 means a caller without a message.
    """

    execution: str
    priority: Priority
    weight: int
    sequence: int
    receives: int

    @property
    def position(self) -> tuple[str, int]:
        """Its place in its message group, as in the process's item."""
        return str(self.sequence).zfill(40), self.receives

    @property
    def asked(self) -> Asked:
        """What the judge knows of this request; all of them have waited."""
        return Asked(self.priority, self.weight, self.position) if self.sequence else Asked(None, self.weight)

    def candidate(self, process: str, mark: int) -> Candidate:
        """What a starter makes of this receive. The receipt handle contains the call's mark."""
        delivery = None
        if self.sequence:
            delivery = Delivery(
                "message", "{}", "group", f"handle-{mark}", str(self.sequence), self.receives, sent_at=0.0
            )
        return Candidate(process, self.execution, self.weight or None, self.priority, delivery)


@dataclass(frozen=True)
class Messages:
    """The messages of one race.

    Args:
        executions: the number of executions that these messages start, again and again.
        weights: see Message.
    """

    process: str
    executions: int
    priorities: Sequence[Priority]
    weights: Sequence[int]

    def any(self, chance: random.Random) -> Message:
        """A receive of a message of some age: an older delivery must not replace a newer one."""
        age = min(int(chance.expovariate(1 / 3)), _OLDEST)
        return self.receive(time.monotonic_ns() // INTERVAL - age, chance.randint(1, _MOST_RECEIVES))

    def receive(self, sequence: int, receives: int) -> Message:
        of_this = random.Random(sequence)  # noqa: S311
        execution = f"{self.process}-{of_this.randrange(self.executions)}"
        return Message(execution, of_this.choice(self.priorities), of_this.choice(self.weights), sequence, receives)
