"""Conditional writes whose answers are lost: nothing is done twice, and no instance waits for a lease.

The clock is held, and a lease lasts much longer than any of these tests, so an instance that continues has not waited
for its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import AUTH, Outage
from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.local_clients import local_client
from slotkeeper.token import Refreshed, TokenRefused, TookOver
from tests.races.shared_token import TokenSharers, start
from tests.support.boundary import Calls
from tests.support.losing_proxy import LosingProxy
from tests.support.waiting import wait_until

OTHERS = 20
# Texts that only the request of one step contains.
TAKE, STORE, REFUSE = b"SET refresh_lock", b"SET access_token", b"SET refused_until"


@pytest.fixture
def proxy(dynamodb_local: DynamoDbLocal) -> Iterator[LosingProxy]:
    with LosingProxy(dynamodb_local.endpoint) as running:
        yield running


def refresh_while_others_wait(sharing: TokenSharers, proxy: LosingProxy, attempts: int) -> list[BaseException | str]:
    """One instance behind the proxy refreshes, and others get the token during its POST. Returns their results.

    With one attempt the code sees the lost answer. With more, botocore repeats the request.
    """
    sharing.clock.hold()
    sharing.service.strike(AUTH, Outage("hold", times=1))
    first = start([sharing.new(local_client("dynamodb", proxy.url, attempts=attempts)).get])
    wait_until(lambda: sharing.service.auths == 1, "the POST")
    calls = Calls(sharing.dynamodb)
    others = start([instance.get for instance in sharing.several(OTHERS)])
    wait_until(lambda: len(calls.made) >= 2 * OTHERS, "two reads of each instance")
    sharing.service.end_outage()
    return [future.exception() or future.result() for future in [*first, *others]]


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("step", [TAKE, STORE])
def test_f33_a_lost_answer_costs_neither_a_second_refresh_nor_a_lease(
    sharing: TokenSharers, proxy: LosingProxy, step: bytes, attempts: int
) -> None:
    proxy.lose_answer_to(step)
    tokens = refresh_while_others_wait(sharing, proxy, attempts)
    assert len(proxy.lost) == 1
    assert {isinstance(token, str) and sharing.service.is_live(token) for token in tokens} == {True}
    assert (sharing.service.auths, sharing.item().generation) == (1, 1)
    assert (sharing.count(Refreshed), sharing.count(TookOver)) == (1, 0)


@pytest.mark.parametrize("attempts", [1, 3])
def test_f33_f35_a_refusal_whose_answer_is_lost_reaches_every_caller_and_costs_one_post(
    sharing: TokenSharers, proxy: LosingProxy, attempts: int
) -> None:
    proxy.lose_answer_to(REFUSE)
    sharing.client_secret = "not the service's"
    errors = refresh_while_others_wait(sharing, proxy, attempts)
    assert len(proxy.lost) == 1
    assert {(type(error), "credentials may be wrong" in str(error)) for error in errors} == {(TokenRefused, True)}
    assert (sharing.service.auths, sharing.count(TookOver)) == (1, 0)


def test_f33_a_network_that_loses_many_answers_costs_one_post(sharing: TokenSharers, proxy: LosingProxy) -> None:
    for _ in range(OTHERS):
        proxy.lose_answer_to(b"SET ")
    through_the_proxy = local_client("dynamodb", proxy.url, connections=2 * OTHERS)
    waiting = start([sharing.new(through_the_proxy).get for _ in range(2 * OTHERS)])
    assert {sharing.service.is_live(future.result()) for future in waiting} == {True}
    assert (sharing.service.auths, len(proxy.lost) > 1) == (1, True)
