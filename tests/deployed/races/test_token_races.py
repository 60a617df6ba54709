"""Instances that share one token on DynamoDB Local: very many, killed, frozen, refused, and with lost answers.

The small worlds of tests/simulation try every order of their calls, with a control for each condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from dev.emulator.chat_service import AUTH, Outage, answer_to
from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from slotkeeper.token import Refreshed, TokenTable, TookOver
from slotkeeper.token.item import TokenItem
from tests.deployed.races.instance_process import InstanceProcess
from tests.deployed.races.losing_proxy import LosingProxy
from tests.deployed.races.shared_token import SHORT_LEASE, SKEW, TokenSharers, errors_of, simultaneously, start
from tests.simulation.account.boundary import Calls
from tests.waiting import wait_until

COLD = 50  # in each process
OTHERS = 20


def test_t1_f29_100_cold_clients_in_two_processes_with_skewed_clocks_cost_one_post(sharing: TokenSharers) -> None:
    skews = [SKEW, -SKEW] * (COLD // 2)
    with ExitStack() as ends:
        processes = [ends.enter_context(InstanceProcess(sharing, skews)) for _ in range(2)]
        assert [process.receive() for process in processes] == ["ready"] * 2
        for process in processes:
            process.resume()
        tokens = [token for process in processes for token in process.receive()["tokens"]]
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
    clients = [local_client("dynamodb", sharing.dynamodb.meta.endpoint_url) for _ in range(2)]
    for client in clients:
        for event in ("before-call", "after-call"):
            client.meta.events.register(f"{event}.dynamodb.UpdateItem", partial(meet_once, [barrier]))
    errors_of([sharing.new(client).get for client in clients])
    assert sharing.service.auths > 1


def test_t2_f30_a_holder_whose_process_is_killed_delays_the_others_by_its_lease_at_most(sharing: TokenSharers) -> None:
    with InstanceProcess(sharing, stops=True) as doomed:
        assert doomed.receive() == "ready"
        doomed.resume()
        assert doomed.receive() == "between POST and store"
        doomed.kill()
    calls, timing = Calls(sharing.dynamodb), sharing.timing
    sharing.clock.hold()
    waiting = start([instance.get for instance in sharing.several(OTHERS)])
    wait_until(lambda: len(calls.made) >= 2 * OTHERS, "two reads of each instance")
    assert sharing.count(TookOver) == 0
    sharing.clock.move(timing.lease + timing.spread)
    assert {sharing.service.is_live(future.result()) for future in waiting} == {True}
    assert (sharing.count(TookOver), sharing.service.auths, sharing.stored_is_live()) == (1, 2, True)


def test_t3_f36_a_process_that_thaws_after_its_lease_does_not_overwrite_the_newer_token(sharing: TokenSharers) -> None:
    sharing.timing = SHORT_LEASE
    with InstanceProcess(sharing, stops=True) as frozen:
        assert frozen.receive() == "ready"
        frozen.resume()
        assert frozen.receive() == "between POST and store"
        frozen.freeze()
        others = sharing.several(OTHERS)
        assert set(map(sharing.service.is_live, simultaneously([other.get for other in others]))) == {True}
        assert sharing.count(TookOver) == 1
        kept = sharing.item()
        frozen.resume()
        frozen.thaw()
        assert "StoredTooLate" in frozen.receive()["events"]
        assert sharing.item().generation > kept.generation or sharing.item() == kept
        frozen.resume()
        assert frozen.receive() == [answer_to("hello")]
    for _ in range(2):
        simultaneously([other.ask for other in others])
    assert sharing.stored_is_live()


@pytest.mark.parametrize("attempts", [1, 3], ids=["the code sees the lost answer", "botocore repeats the request"])
@pytest.mark.parametrize("step", [b"SET refresh_lock", b"SET access_token"])
def test_f33_a_lost_answer_costs_neither_a_second_refresh_nor_a_lease(
    sharing: TokenSharers, dynamodb_local: DynamoDbLocal, step: bytes, attempts: int
) -> None:
    """The clock is held, and a lease lasts longer than the test: an instance that continues has not waited for it."""
    with LosingProxy(dynamodb_local.endpoint) as proxy:
        proxy.lose_answer_to(step)
        sharing.clock.hold()
        sharing.service.strike(AUTH, Outage("hold", times=1))
        first = start([sharing.new(local_client("dynamodb", proxy.url, attempts=attempts)).get])
        wait_until(lambda: sharing.service.auths == 1, "the POST")
        calls = Calls(sharing.dynamodb)
        others = start([instance.get for instance in sharing.several(OTHERS)])
        wait_until(lambda: len(calls.made) >= 2 * OTHERS, "two reads of each instance")
        sharing.service.end_outage()
        assert {sharing.service.is_live(future.result()) for future in [*first, *others]} == {True}
        assert len(proxy.lost) == 1
    assert (sharing.service.auths, sharing.item().generation) == (1, 1)
    assert (sharing.count(Refreshed), sharing.count(TookOver)) == (1, 0)


def test_f35_wrong_credentials_cost_one_post_per_refusal_and_every_caller_gets_the_reason_immediately(
    sharing: TokenSharers,
) -> None:
    sharing.client_secret = "not the service's"
    sharing.clock.hold()
    gets = [instance.get for instance in sharing.several(100, SKEW)]
    why = {"the API gave no token: POST /auth was answered with HTTP 401: the credentials may be wrong"}
    assert ({str(error) for error in errors_of(gets)}, sharing.service.auths) == (why, 1)
    sharing.clock.move(sharing.timing.refusal - 0.1)
    calls = Calls(sharing.dynamodb)
    assert ({str(error) for error in errors_of(gets)}, sharing.service.auths) == (why, 1)
    assert Counter(calls.made) == {"GetItem": 100}  # one read each, without waiting
