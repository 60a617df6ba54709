"""The operator's commands on the token item, while instances use and refresh the token."""

from __future__ import annotations

import pytest

from slotkeeper.token import TokenRefused, TokenStatus
from tests.unit.token_instances import NAME, NOW, Instances, lock_of_another

TOKEN = "SECRET-TOKEN-OF-THE-API"


def test_operator_calls_never_return_the_token(instances: Instances) -> None:
    instances.put(
        access_token={"S": TOKEN},
        generation={"N": "7"},
        refresh_lock={"M": {"release_code": {"S": "SECRET-CODE"}, "expires": {"N": "1"}}},
    )
    answers: list[str] = []
    instances.dynamodb.meta.events.register("after-call.dynamodb", lambda parsed, **_: answers.append(str(parsed)))
    shown = instances.table.status(NAME)
    dropped = [instances.table.drop(NAME, generation) for generation in (6, 7)]
    assert (shown.generation, dropped, instances.table.clear_refusal(NAME, NOW)) == (7, [False, True], False)
    assert len(answers) == 4
    assert "SECRET" not in "".join(answers) + repr(shown)


def test_t1_a_dropped_token_is_refreshed_once_for_all_instances(instances: Instances) -> None:
    warm = [instances.new() for _ in range(5)]
    assert {instance.get() for instance in warm} == {"token-1"}
    assert instances.table.drop(NAME, 1)
    assert not instances.table.status(NAME).has_token
    assert [instances.new().get() for _ in range(3)] == ["token-2"] * 3
    assert [instance.call(instances.api.ask) for instance in warm] == ["answer"] * 5
    assert instances.api.posts == 2
    assert instances.table.status(NAME) == TokenStatus(generation=2, has_token=True, stored_at=NOW)


# Drop the token ------------------------------------------------------------------------------------------------------


def test_t1_a_token_that_was_refreshed_meanwhile_is_not_dropped(instances: Instances) -> None:
    instances.new().get()
    seen = instances.table.status(NAME)
    instances.api.live = "another's"
    instances.new().call(instances.api.ask)
    assert not instances.table.drop(NAME, seen.generation)
    assert instances.new().get() == "token-2"
    assert instances.api.posts == 2


@pytest.mark.parametrize("expires", [NOW - 1, NOW + 10])
def test_a_drop_does_not_change_the_lock(instances: Instances, expires: float) -> None:
    lock_of_another(instances, expires, access_token={"S": "old"}, generation={"N": "3"})
    assert instances.table.drop(NAME, 3)
    assert instances.table.status(NAME).lock_expires == expires


# Clear a refusal -----------------------------------------------------------------------------------------------------


def refused(instances: Instances) -> float:
    """Let the API refuse a token. Returns the end of the refusal."""
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused) as raised:
        instances.new().get()
    instances.api.down = ""
    return raised.value.until


def test_a_cleared_refusal_allows_the_next_post(instances: Instances) -> None:
    until = refused(instances)
    with pytest.raises(TokenRefused):
        instances.new().get()
    shown = instances.table.status(NAME)
    assert shown.refused_until == until
    assert instances.table.clear_refusal(NAME, until)
    assert instances.table.status(NAME) == TokenStatus()
    assert [instances.new().get() for _ in range(3)] == ["token-2"] * 3
    assert instances.api.posts == 2


def test_a_refusal_later_than_the_read_is_not_cleared(instances: Instances) -> None:
    until = refused(instances)
    instances.time = until + 1
    refused(instances)
    assert not instances.table.clear_refusal(NAME, until)
    assert instances.table.status(NAME).refused_reason == "out of order"
