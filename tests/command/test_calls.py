"""The calls of an answer, as docs/operator.md states them: they do not grow with rows that an answer does not show."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command.account_contents import fail
from tests.command.operator_account import NOW, Operator, client, stack_of
from tests.command.situations import set_clock

_PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
_TABLE = _PAGE.partition("## What an answer costs")[2].partition("\n## ")[0]
# The command -> its calls in a small stack and in a large one, and how many of these are ListExecutions and
# DescribeExecution.
_STATED = {
    command: tuple(map(int, numbers))
    for command, *numbers in re.findall(r"^\| `slotkeeper ([^`]+)` \| (\d+) \| (\d+) \| (\d+) \|$", _TABLE, re.M)
}
_SERVICES = ("cloudformation", "cloudwatch", "dynamodb", "glue", "lambda", "logs", "sqs", "stepfunctions")
_COUNTED = {"ListExecutions", "DescribeExecution"}
HOLDERS, PROCESSES, QUEUED = 60, 40, 100


@contextmanager
def _counting() -> Iterator[Counter[str]]:
    """The calls of the shared clients, by operation."""
    made = Counter[str]()

    def count(model: Any, **_: Any) -> None:
        made[model.name] += 1

    for service in _SERVICES:
        client(service).meta.events.register_first("before-call", count)
    yield made
    for service in _SERVICES:
        client(service).meta.events.unregister("before-call", count)


def _small(operator: Operator) -> None:
    fail(operator, "failed")
    operator.hold("running")
    operator.wait("queued")


def _large(operator: Operator) -> None:
    """More of all: holders, of which half do not run, and processes with a queued request each."""
    operator.processes.set_limit("sample", HOLDERS + 1)
    for number in range(HOLDERS):
        name = operator.hold(f"h{number}")
        if number % 2:
            operator.stop(name)
    for number in range(QUEUED):
        operator.wait(f"q{number}")
    for number in range(PROCESSES):
        operator.processes.create(f"p{number}", 1, "sample-job")
        operator.wait("queued", f"p{number}")


def test_the_calls_of_an_answer_are_those_of_the_page(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, NOW + 60)
    with stack_of():  # of the doctor's checks, those of slots
        assert _measured(operator) == _STATED


def _measured(operator: Operator) -> dict[str, tuple[int, ...]]:
    measured: dict[str, tuple[int, ...]] = dict.fromkeys(_STATED, ())
    for fill in (_small, _large):
        fill(operator)
        for command in _STATED:
            with _counting() as made:
                operator.run(*shlex.split(command))
            measured[command] += (made.total(),)
    for command in _STATED:
        with _counting() as made:
            operator.run(*shlex.split(command))
        measured[command] += (sum(made[each] for each in _COUNTED),)
    return measured
