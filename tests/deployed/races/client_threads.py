"""A process of clients in a race on DynamoDB Local: threads that lose some answers."""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from dev.emulator.local_clients import local_client
from tests.deployed.races.controlled_process import receive_line, send_line
from tests.deployed.races.shared_token import start
from tests.simulation.account.boundary import lose_answers

Change = tuple[str, str, str]  # a constant of the protocol's module, a part of it, and the replacement

LOST = 0.04  # the share of UpdateItem's answers that is lost


def serve(race: Callable[[Any, Any, range], None], lost: float = LOST) -> None:
    """Run the process.

    Args:
        race: runs one race: client of DynamoDB, orders, and the number of each thread, from 1.
        lost: the share of UpdateItem's answers that is lost.
    """
    endpoint, number, threads = json.loads(sys.argv[1])
    dynamodb = local_client("dynamodb", endpoint, connections=threads)
    chance = random.Random(number)  # noqa: S311
    lose_answers(dynamodb, "UpdateItem", lambda: chance.random() < lost)
    send_line("ready")
    while True:
        race(dynamodb, receive_line(), range(number * threads + 1, (number + 1) * threads + 1))


def run_clients(clients: Sequence[Callable[[], None]], save: Callable[[], None]) -> None:
    """Run each client on a thread. Call `save` after the last one, and send their errors."""
    running = start(clients)
    errors = ["".join(traceback.format_exception(error)) for future in running if (error := future.exception())]
    save()
    send_line(errors)


@contextmanager
def changed(module: ModuleType, changes: Iterable[Change] = (), **values: Any) -> Iterator[None]:
    """Replace parts of a module's constants, and whole `values`, for one race."""
    before = {name: getattr(module, name) for name in (*values, *(constant for constant, _, _ in changes))}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        for constant, old, new in changes:
            text = getattr(module, constant)
            assert old in text, f"{old!r} is not in {constant}"
            setattr(module, constant, text.replace(old, new))
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
