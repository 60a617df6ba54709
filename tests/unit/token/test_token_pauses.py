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


UNTIMED = {name: value for name, value in FOUND.items() if name != "refresh_seconds"}


@pytest.mark.parametrize(
    ("item", "pause"),
    [
        pytest.param(FOUND | lock_taken(0.0), FIRST_EXPECTED_SECONDS, id="a new lock: when the last refresh ended"),
        pytest.param(FOUND | lock_taken(LAST), FIRST_POLL_SECONDS, id="a lock as old as the last refresh"),
        pytest.param(FOUND | lock_taken(2.0), FIRST_POLL_SECONDS, id="an older lock"),
        pytest.param(FOUND | lock_taken(-1000.0), FIRST_EXPECTED_SECONDS, id="a lock by a clock ahead"),
        pytest.param(UNTIMED | lock_taken(0.0), FIRST_POLL_SECONDS, id="no recorded duration"),
        pytest.param(FOUND, FIRST_EXPECTED_SECONDS, id="no lock, and another instance takes it first"),
    ],
)
def test_an_instance_polls_when_the_refresh_of_another_probably_ends(
    instances: Instances, monkeypatch: pytest.MonkeyPatch, item: dict[str, Any], pause: float
) -> None:
    monkeypatch.setattr(instances.table, "acquire", lambda *_: False)
    assert after_first_read(instances, **item).longest_poll_interval == pytest.approx(pause, abs=0.1)
