"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable


def wait_until[Value](
    condition: Callable[[], Value], what: str, timeout: float = 20.0, interval: float = 0.05
) -> Value:
    """Call `condition` until its value is true, and return that value.

    Raises AssertionError after `timeout` seconds; it says `what` was awaited and what the last value was.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; the last value was {value!r}")
        time.sleep(interval)
