"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable

# Seconds. It ends a test whose condition never becomes true. It is no upper bound: a slow machine passes.
NEVER = 60.0


def wait_until[Value](condition: Callable[[], Value | None], what: str, interval: float = 0.05) -> Value:
    """Call `condition` until its value is true, and return that value. A long wait calls it less often.

    Raises AssertionError after NEVER seconds, with `what` and the last value.
    """
    deadline = time.monotonic() + NEVER
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {NEVER:g} s for {what}; the last value was {value!r}")
        time.sleep(interval)
        if interval < 0.25:
            interval *= 1.1
