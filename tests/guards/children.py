"""Tasks in parallel, each in a fork of this process, so that what a task changes ends with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

_FORK = get_context("fork")


def each[K, T](tasks: Mapping[K, Callable[[], T]], jobs: int, seconds: float) -> Iterator[tuple[K, T | str]]:
    """The results of the tasks as they end; of one that fails, dies or does not end within the seconds, a text."""
    left = list(tasks.items())[::-1]
    running: dict[Any, tuple[K, Any, float]] = {}
    try:
        while left or running:
            while left and len(running) < jobs:
                name, task = left.pop()
                answers, answer = _FORK.Pipe(duplex=False)
                child = _FORK.Process(target=_perform, args=(task, answer))
                child.start()
                answer.close()
                running[answers] = name, child, time.monotonic()
            ended = wait(list(running), timeout=1)
            late = [each for each, (*_, began) in running.items() if time.monotonic() - began > seconds]
            for answers in {*ended, *late}:
                name, child, _ = running.pop(answers)
                yield name, _answer(answers) if answers in ended else f"has not ended within {seconds:.0f} s"
                child.kill()
                child.join()
    finally:
        for _, child, _ in running.values():
            child.kill()


def _perform(task: Callable[[], Any], answer: Connection) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    try:
        answer.send(task())
    except BaseException as error:
        answer.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # without the exit handlers of the parent


def _answer(answers: Any) -> Any:
    try:
        return answers.recv()
    except EOFError:
        return "died"
