"""The poll intervals of an instance that waits for another's refresh, by the duration of the last refresh."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.token.refresh import Dependencies, TokenRefresh
from slotkeeper.token.timing import FIRST_EXPECTED_SECONDS, FIRST_POLL_SECONDS, KnownToken
from tests.unit.token_instances import NAME, NOW, QUICK, Instances

LAST = 1.0  # seconds that the last refresh took
FOUND = {"access_token": {"S": "dead"}, "generation": {"N": "7"}, "refresh_seconds": {"N": str(LAST)}}


def after_first_read(instances: Instances, **item: Any) -> TokenRefresh:
    """A refresh after its first read of such an item."""
    instances.put(**item)
    dependencies = Dependencies(
        instances.table, NAME, instances.api.authenticate, None, QUICK, instances.events.append, lambda: NOW
    )
    refresh = TokenRefresh(dependencies, KnownToken("dead", 7), 10.0)
    assert refresh.check() is None
    return refresh


def lock_taken(seconds_ago: float) -> dict[str, Any]:
    expires = NOW - seconds_ago + QUICK.lease
    return {"refresh_lock": {"M": {"release_code": {"S": "other"}, "expires": {"N": str(expires)}}}}


def test_a_refresh_stores_how_long_its_lock_was_held(instances: Instances) -> None:
    def take_a_while() -> None:
        instances.time += LAST

    instances.api.before_answer = take_a_while
    instances.new().get()
    assert float(instances.raw_item()["refresh_seconds"]["N"]) == pytest.approx(LAST, abs=0.5)


def test_a_new_lock_is_polled_after_the_duration_of_the_last_refresh(
    instances: Instances,
) -> None:
    assert after_first_read(instances, **FOUND, **lock_taken(0.0)).longest_poll_interval == pytest.approx(
        FIRST_EXPECTED_SECONDS, abs=0.1
    )


@pytest.mark.parametrize("ago", [LAST, 2.0, -1000.0 * LAST])
def test_an_older_lock_is_polled_soon_and_a_wrong_clock_does_not_extend_the_pause(
    instances: Instances, ago: float
) -> None:
    pause = after_first_read(instances, **FOUND, **lock_taken(ago)).longest_poll_interval
    assert pause <= FIRST_EXPECTED_SECONDS + 0.1
    assert ago < 0 or pause == pytest.approx(FIRST_POLL_SECONDS, abs=0.1)


def test_a_lock_without_a_recorded_refresh_duration_is_polled_soon(instances: Instances) -> None:
    del (item := dict(FOUND))["refresh_seconds"]
    assert after_first_read(instances, **item, **lock_taken(0.0)).longest_poll_interval == pytest.approx(
        FIRST_POLL_SECONDS, abs=0.1
    )


def test_an_instance_that_loses_the_race_for_the_lock_pauses_as_well(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances.table, "acquire", lambda *_: False)
    assert after_first_read(instances, **FOUND).longest_poll_interval == pytest.approx(FIRST_EXPECTED_SECONDS, abs=0.1)
