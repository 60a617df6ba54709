"""Threads dispatch, release, adopt and change limits of keys on DynamoDB Local. Each version of the item is checked."""

from __future__ import annotations

import random
from contextlib import suppress
from queue import Empty
from typing import Any
from uuid import uuid4

import pytest

from dev.benchmarks.keyed_queue import NOW, PROCESS, KeyedQueue
from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from dev.judge.slot_item import Asked, Item, wrong_history
from slotkeeper.slots import grants, plan, processes, protocol
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.protocol import Slots
from tests.deployed.races.lease_race import images_of
from tests.deployed.races.shared_token import errors_of

KEYS = "", "a", "b", "c"
THREADS, CYCLES = 6, 25
ROUNDS = 20  # on a busy machine fewer races are contended
BUMP = "grants = grants + :one"
_chance = random.Random(1)  # noqa: S311


def race(local: DynamoDbLocal) -> list[str]:
    """Run a race; its faults."""
    queue = KeyedQueue(local.client(), f"race-{uuid4()}", slot_limit=8, key_limit=2)
    for weight in (1, 2, 1):
        queue.send(_chance.choices(KEYS, k=2 * CYCLES), weight=weight)
    slots = Slots(local.client(), queue.slots.name)
    ran: list[str] = []

    def act() -> None:
        adopted = ""
        for _ in range(CYCLES):
            kind, key = _chance.random(), _chance.choice(KEYS)
            if kind < 0.2:
                queue.processes.set_key_limit(PROCESS, _chance.choice([None, 0, 1, 2, 3]), key)
            elif kind < 0.4:
                slots.adopt(PROCESS, name := f"adopted-{uuid4()}", NOW, "job", key=key)
                queue.release(adopted or name)
                adopted = name
            else:
                queue.ring(Bell(PROCESS))
                with suppress(Empty):
                    ran.append(name := queue.started.get_nowait())
                    queue.confirm(name)
                    queue.outcomes.succeeded(PROCESS, name, NOW)
                    queue.release(name)

    errors = errors_of([act] * THREADS)
    assert not any(errors), errors
    assert ran
    asked = {name: Asked(request.weight, key=request.key) for name, request in queue.requests.items()}
    images = images_of(local_client("dynamodbstreams", local.endpoint), queue.stream)
    breaches = wrong_history(map(Item.read, images), lambda name, _: asked.get(name, Asked(adopted=True)))
    return [str(breach) for _, breach in breaches]


def test_s12_a_key_never_has_more_than_its_limit_by_a_grant(dynamodb_local: DynamoDbLocal) -> None:
    assert race(dynamodb_local) == []


@pytest.mark.parametrize(
    ("owner", "name", "weakened"),
    [
        pytest.param(module, name, getattr(module, name).replace(old, new), id=name)
        for module, name, old, new in (
            (processes, "KEY_LIMIT_UPDATE", BUMP, "changed = :one"),
            (protocol, "ADOPT_UPDATE", BUMP, "changed = :one"),
            (grants, "GRANT_CONDITION", "grants = :seen", "grants >= :seen"),
        )
    ]
    + [pytest.param(plan._Free, "refuses_key", lambda *_: None, id="a plan without limits of keys")],
)
def test_control_without_its_protection_a_key_has_more(
    owner: Any, name: str, weakened: Any, dynamodb_local: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, weakened)
    faults = (fault for _ in range(ROUNDS) for fault in race(dynamodb_local))
    assert any("are granted, and key" in fault for fault in faults), f"not found in {ROUNDS} races"
