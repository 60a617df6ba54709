"""Calls at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

THREADS = 8  # calls at the same time


def in_parallel[Input, Output](call: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Call a function for each input, up to eight at the same time; return the results in the inputs' order."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, inputs))
