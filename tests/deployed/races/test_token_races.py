"""A hundred instances in two processes share one token on DynamoDB Local.

The small worlds of tests/simulation try every order of their calls, with a control for each condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from dev.emulator.local_clients import local_client
from slotkeeper.token import TokenTable
from slotkeeper.token.item import TokenItem
from tests.deployed.races.crowd import Crowd
from tests.deployed.races.shared_token import SKEW, TokenSharers, cold, errors_of, instance

COLD = 50  # in each process


def test_t1_f29_100_cold_clients_in_two_processes_with_skewed_clocks_cost_one_post(sharing: TokenSharers) -> None:
    prepare = partial(cold, sharing.endpoint, sharing.name, sharing.api, [SKEW, -SKEW] * (COLD // 2))
    with Crowd(2) as crowd:
        tokens = [token for each in crowd.run([prepare] * 2) for token in each]
    assert (len(tokens), set(map(sharing.service.is_live, tokens)), sharing.service.auths) == (2 * COLD, {True}, 1)


def test_control_without_the_lock_in_the_condition_both_instances_post(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read before either has the lock, and both have their answers before either sends POST /auth."""
    update, held = TokenTable._update, "attribute_not_exists(refresh_lock)"

    def weakened(
        table: TokenTable, name: str, expression: str, condition: str, values: Mapping[str, Any]
    ) -> tuple[bool, TokenItem]:
        lenient = condition.replace(held, f"({held} OR attribute_exists(refresh_lock))")
        return update(table, name, expression, lenient, values)

    def meet_once(unmet: list[Barrier], **_: Any) -> None:
        if unmet:
            unmet.pop().wait()

    monkeypatch.setattr(TokenTable, "_update", weakened)
    barrier = Barrier(2, timeout=30)
    clients = [local_client("dynamodb", sharing.endpoint) for _ in range(2)]
    for client in clients:
        for event in ("before-call", "after-call"):
            client.meta.events.register(f"{event}.dynamodb.UpdateItem", partial(meet_once, [barrier]))
    errors_of([instance(client, sharing.name, sharing.api).get for client in clients])
    assert sharing.service.auths > 1
