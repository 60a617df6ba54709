"""What goes on beside a course: the janitor on a clock of its own, and what an onlooker sees."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from .records import Round
from .stage import JANITOR_PERIOD, Stage


class Rounds:
    """The janitor on a clock of its own. A context manager; rests while `resting` is set."""

    def __init__(self, stage: Stage) -> None:
        self.done: list[Round] = []
        self.resting = threading.Event()
        self._stage = stage
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def _go(self) -> None:
        while not self._over.wait(JANITOR_PERIOD):
            if not self.resting.is_set():
                self.done.append(self._stage.go_round())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(5)


@dataclass(frozen=True)
class Snapshot:
    """What an onlooker sees. `slots`: process -> (holders, limit, paused)."""

    elapsed: float
    seconds: float
    sent: int
    queued: int
    running: int
    slots: Mapping[str, tuple[int, int, bool]]
    rounds: int
    faults: int
    last: str
    phase: str

    @property
    def settled(self) -> bool:
        """Nothing waits, nothing runs, nobody holds a slot."""
        return not (self.queued or self.running or any(holders for holders, _, _ in self.slots.values()))
