"""Negative controls of the token lock: without each protection, the same instances show the failure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from dev.emulator.chat_service import AUTH, Outage
from dev.emulator.local_clients import local_client
from slotkeeper.token import Timing, TokenRefused, TokenTable
from slotkeeper.token import item as token_item
from slotkeeper.token import lock as token_lock
from slotkeeper.token.item import TokenItem
from slotkeeper.token.timing import KnownToken
from tests.races.frozen_instances import OTHERS, Freeze, ask_with_pause_between_read_and_acquire
from tests.races.shared_token import SKEW, TokenSharers, errors_of, simultaneously

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

SHORT_TIMEOUTS = Timing(api=2.0, store=1.0, clock_skew=SKEW, min_interval=0.0, patience=5.0)  # every call fails
ALWAYS = "attribute_not_exists(no_such_attribute)"


def disable_condition(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let `part` of a condition hold for every item."""
    update = TokenTable._update

    def weakened(
        table: TokenTable, name: str, expression: str, condition: str, values: Mapping[str, Any]
    ) -> tuple[bool, TokenItem]:
        return update(table, name, expression, condition.replace(part, f"({part} OR {ALWAYS})"), values)

    monkeypatch.setattr(TokenTable, "_update", weakened)


def client_that_meets(barrier: Barrier, sharing: TokenSharers) -> DynamoDBClient:
    """A client that waits at the barrier before its first write and after the answer."""
    dynamodb = local_client("dynamodb", sharing.dynamodb.meta.endpoint_url)

    def meet_once(unmet: list[Barrier], **_: Any) -> None:
        if unmet:
            unmet.pop().wait()

    for event in ("before-call", "after-call"):
        dynamodb.meta.events.register(f"{event}.dynamodb.UpdateItem", partial(meet_once, [barrier]))
    return dynamodb


def test_control_without_the_lock_in_the_condition_both_instances_post(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read before either has the lock, and both have their answers before either sends POST /auth."""
    disable_condition(monkeypatch, "attribute_not_exists(refresh_lock)")
    barrier = Barrier(2, timeout=30)
    errors_of([sharing.new(client_that_meets(barrier, sharing)).get for _ in range(2)])
    assert sharing.service.auths > 1


def test_control_without_the_generation_in_the_condition_an_instance_with_an_old_read_posts_again(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    disable_condition(monkeypatch, "attribute_not_exists(generation)")
    ask_with_pause_between_read_and_acquire(sharing)
    assert sharing.service.auths > 1


def test_control_without_comparing_tokens_several_instances_with_the_old_token_post(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = sharing.several(OTHERS, still_valid=None, timing=SHORT_TIMEOUTS)
    simultaneously([instance.get for instance in instances])
    sharing.service.invalidate()
    monkeypatch.setattr(KnownToken, "is_stored_in", lambda _known, _item: True)
    errors_of([instance.ask for instance in instances])
    assert sharing.service.auths > 1 + 1


def test_control_without_the_release_code_a_late_store_overwrites_the_newer_token(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_item, "HELD_CONDITION", f"(refresh_lock.release_code = :mine OR {ALWAYS})")
    monkeypatch.setattr(token_lock, "MAX_TOKENS_PER_REQUEST", 2)
    freeze = Freeze(sharing, "between POST and store", SHORT_TIMEOUTS)
    freeze.begin()
    freeze.outlast_the_lease()
    errors_of([other.ask for other in freeze.others])
    freeze.stop.resume()
    freeze.message.exception()
    assert not sharing.stored_is_live()


def test_control_without_the_margin_for_skew_a_live_lock_is_taken_over(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze = Freeze(sharing, "before the POST", SHORT_TIMEOUTS)
    monkeypatch.setattr(Timing, "lease", Timing.holding)
    freeze.begin()
    sharing.clock.move(sharing.timing.holding - 0.05)
    errors_of([other.ask for other in freeze.others])
    freeze.stop.resume()
    freeze.message.exception()
    assert sharing.service.auths > 1 + 1


def test_control_without_the_refusal_several_instances_post(
    sharing: TokenSharers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timing, "longest_refusal", -1.0)
    sharing.service.strike(AUTH, Outage(status=503))
    assert {type(error) for error in errors_of([instance.get for instance in sharing.several(OTHERS)])} == {
        TokenRefused
    }
    assert sharing.service.auths > 1
