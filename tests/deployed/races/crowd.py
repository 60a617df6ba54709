"""Processes that begin together and share nothing but the tables. They end when their parent has ended."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.waiting import NEVER

_begin: Any = None  # of a process: the barrier of all


class Crowd:
    """So many processes. A context manager."""

    def __init__(self, processes: int) -> None:
        self.processes, context = processes, multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, _join_crowd, (context.Barrier(processes),))

    def run[Result](self, prepare: Sequence[Callable[[], Callable[[], Result]]]) -> list[Result]:
        """Call one of them in each process; when all have returned, what each returned. Raises their errors."""
        futures = [self._pool.submit(_run, each) for each in prepare]
        return [future.result() for future in futures]

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _join_crowd(barrier: Any) -> None:
    global _begin  # noqa: PLW0603
    _begin = barrier
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run[Result](prepare: Callable[[], Callable[[], Result]]) -> Result:
    work = prepare()
    _begin.wait(NEVER)
    return work()
