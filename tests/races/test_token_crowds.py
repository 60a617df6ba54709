"""One token and many simultaneous instances on DynamoDB Local.

test_token_deaths and test_token_losses have killed and frozen instances, and lost answers.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Literal

import pytest

from dev.emulator.chat_service import AUTH, Outage
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.token import StillUnauthorized, TokenRefused
from tests.races.instance_process import InstanceProcess
from tests.races.shared_token import LONG_LEASE, SKEW, Instance, TokenSharers, errors_of, simultaneously, start
from tests.support.boundary import Calls
from tests.support.waiting import wait_until

COLD = 500
BUSY = 30
PAUSE = 0.2  # seconds between two messages of an instance: the test checks the lock, not the machine's throughput


def test_t1_f29_500_cold_clients_in_four_processes_with_skewed_clocks_cost_one_post(sharing: TokenSharers) -> None:
    skews = [SKEW, -SKEW, 0.0] * 41 + [SKEW, -SKEW]
    with ExitStack() as ends:
        processes = [ends.enter_context(InstanceProcess(sharing, skews)) for _ in range(4)]
        assert [process.receive() for process in processes] == ["ready"] * 4
        for process in processes:
            process.resume()
        tokens = [token for process in processes for token in process.receive()["tokens"]]
    assert (len(tokens), set(map(sharing.service.is_live, tokens)), sharing.service.auths) == (COLD, {True}, 1)


class Load:
    """Instances that send one message after the other, inside the `with` block."""

    def __init__(self, sharing: TokenSharers, instances: list[Instance]) -> None:
        self._service = sharing.service
        self._ended = threading.Event()
        self._last_token = [""] * len(instances)  # of the last answer of each
        self.failed: list[Exception] = []
        self.answered = 0
        self._threads = [threading.Thread(target=self._ask, args=each) for each in enumerate(instances)]

    def _ask(self, number: int, instance: Instance) -> None:
        while not self._ended.wait(PAUSE * (0.5 + number / BUSY)):  # each at its own pace
            try:
                instance.ask()
            except Exception as error:
                self.failed.append(error)
            else:
                self._last_token[number] = instance.get()
                self.answered += 1

    def wait_until_all_use_the_live_token(self) -> None:
        """Wait until no instance is between a 401 and its repetition."""
        wait_until(lambda: all(map(self._service.is_live, self._last_token)), "an answer with the live token for each")

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_t1_ten_invalidations_under_load_cost_ten_posts_and_no_answer_with_skewed_clocks(sharing: TokenSharers) -> None:
    sharing.timing = replace(LONG_LEASE, min_interval=0.05)
    with Load(sharing, sharing.several(BUSY // 2, SKEW)) as load:
        for _ in range(10):
            load.wait_until_all_use_the_live_token()
            sharing.service.invalidate()
        load.wait_until_all_use_the_live_token()
    assert (load.failed, sharing.service.auths) == ([], 1 + 10)


def test_f31_with_the_probe_a_request_that_is_always_answered_401_does_not_invalidate_the_token(
    sharing: TokenSharers,
) -> None:
    sharing.service.forbidden = {"forbidden"}
    bad = sharing.new()
    with Load(sharing, sharing.several(BUSY)) as load:
        load.wait_until_all_use_the_live_token()
        for _ in range(3):
            with pytest.raises(StillUnauthorized):
                bad.ask("forbidden")
    assert (load.failed, sharing.service.auths) == ([], 1)


def test_f31_without_the_probe_it_costs_at_most_one_refresh_an_interval_and_no_other_answer(
    sharing: TokenSharers, dynamodb_local: DynamoDbLocal
) -> None:
    sharing.clock.hold()
    sharing.service.forbidden = {"forbidden"}
    its_own = dynamodb_local.client()
    bad = sharing.new(its_own, still_valid=None)
    with Load(sharing, sharing.several(BUSY, still_valid=None)) as load:
        for refreshes in range(2):
            load.wait_until_all_use_the_live_token()
            calls = Calls(its_own)
            (asked,) = start([partial(bad.ask, "forbidden")])
            wait_until(lambda calls=calls: len(calls.made) > 4, "reads of a token that is too new to refresh")
            assert sharing.service.auths == 1 + refreshes
            sharing.clock.move(sharing.timing.min_interval + 0.01)
            assert isinstance(asked.exception(), StillUnauthorized)
            assert sharing.service.auths == 1 + refreshes + 1
    assert load.failed == []


class RepeatedCallers:
    """A hundred instances that get a token simultaneously, also after a refusal. The clock is held."""

    def __init__(self, sharing: TokenSharers) -> None:
        sharing.clock.hold()
        self._instances = sharing.several(100, SKEW)

    def call(self) -> set[str]:
        """Their errors as text."""
        return {str(error) for error in errors_of([instance.get for instance in self._instances])}


def test_f35_wrong_credentials_cost_one_post_per_refusal_and_every_caller_gets_the_reason_immediately(
    sharing: TokenSharers,
) -> None:
    sharing.client_secret = "not the service's"
    callers = RepeatedCallers(sharing)
    why = {"the API gave no token: POST /auth was answered with HTTP 401: the credentials may be wrong"}
    assert (callers.call(), sharing.service.auths) == (why, 1)
    sharing.clock.move(sharing.timing.refusal - 0.1)
    calls = Calls(sharing.dynamodb)
    assert (callers.call(), sharing.service.auths) == (why, 1)
    assert Counter(calls.made) == {"GetItem": 100}  # one read each, without waiting


def test_f35_after_an_outage_a_hundred_recover_with_one_post(sharing: TokenSharers) -> None:
    callers = RepeatedCallers(sharing)
    sharing.service.strike(AUTH, Outage(status=503))
    assert callers.call() == {"the API gave no token: POST /auth was answered with HTTP 503"}
    sharing.service.end_outage()
    # The refusal has ended by the slowest clock, even if the fastest one wrote it.
    sharing.clock.move(sharing.timing.refusal + 4 * SKEW + 0.1)
    assert (callers.call(), sharing.service.auths, sharing.stored_is_live()) == ({"None"}, 2, True)


@pytest.mark.parametrize("kind", ["drop", "hang"])
def test_a_post_that_took_effect_and_was_never_answered_is_not_repeated_before_the_refusal_ends(
    sharing: TokenSharers, kind: Literal["drop", "hang"]
) -> None:
    sharing.timing = replace(LONG_LEASE, api=1.0)
    sharing.clock.hold()
    sharing.service.strike(AUTH, Outage(kind, takes_effect=True))
    instances = sharing.several(20)
    assert {type(error) for error in errors_of([instance.get for instance in instances])} == {TokenRefused}
    assert (sharing.service.auths, len(sharing.service.token_history)) == (1, 1)
    sharing.service.end_outage()
    sharing.clock.move(sharing.timing.refusal + 2 * sharing.timing.spread + 0.1)
    assert set(map(sharing.service.is_live, simultaneously([instance.get for instance in instances]))) == {True}
    assert sharing.service.auths == 2
