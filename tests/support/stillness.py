"""How much of a time the machine itself did not move, for bounds that are promised in seconds.

A bound on a busy machine has two ways to be missed: the code was slow, or nobody ran. A metronome knows the second: its
thread asks for a hundredth of a second again and again, and what it gets too much was taken from everybody.
"""

from __future__ import annotations

import threading
import time
from typing import Self

BEAT = 0.01


class Stillness:
    """Counts while it is entered; `seconds` is what it has counted."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()
        self._metronome = threading.Thread(target=self._count, daemon=True)

    def _count(self) -> None:
        began = time.monotonic()
        while not self._over.wait(BEAT):
            now = time.monotonic()
            self.seconds += now - began - BEAT
            began = now

    def __enter__(self) -> Self:
        self._metronome.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._metronome.join()
