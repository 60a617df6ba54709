"""The plan: equal for equal seeds, with every kind of fault, and without new faults at its end."""

from __future__ import annotations

from collections import Counter

import pytest

from dev.scenarios.soak import soak_plan as plan
from dev.scenarios.soak.soak_plan import DECK, PROCESSES, burst, draw


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert draw(2.0, 7, 3) == draw(2.0, 7, 3)
    assert draw(2.0, 7, 3) != draw(2.0, 8, 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_of_minutes_has_every_kind_of_fault_request_and_ending(seed: int) -> None:
    made = draw(10.0, seed, 3)
    assert made.limits == dict(zip(PROCESSES, (3, 2, 1), strict=True))
    kinds = Counter(fault.kind for fault in made.faults)
    assert set(kinds) == {*DECK, *plan.RESTARTED}
    assert all(0 <= fault.at <= 600 * plan.CALM for fault in made.faults)
    endings = Counter(send.ending for send in made.sends)
    assert endings["succeed"] > 4 * (endings["fail"] + endings["hang"]) > 0
    sends = [*made.sends, *burst({"soak-a": 3, "soak-b": 2}, 4)]
    assert len({send.request_id for send in sends}) == len(sends)
    changes = [fault.fields for fault in made.faults if fault.kind == "limit changed"]
    assert all(change["limit"] != made.limits[change["process"]] for change in changes)


def test_a_short_run_has_its_engine_killed_in_the_middle() -> None:
    restarts = [fault for fault in draw(0.5, 1, 3).faults if fault.kind in plan.RESTARTED]
    assert [(fault.at, fault.fields["hard"]) for fault in restarts] == [(15.0, True)]
