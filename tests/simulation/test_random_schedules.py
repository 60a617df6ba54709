"""Every guarantee holds in random schedules. Without a guard that small worlds do not need, one of them breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import Any

import pytest

from slotkeeper.slots import grants, janitor, plan, rate
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import judge
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.work import GlueRuns
from tests.simulation import random_slots, small_worlds, workflow
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.world_runs import Remove, all_of, breaks, first_broken, replaced, set_to
from tests.simulation.worlds import Choice
from tests.workflow.definition import states

Patch = pytest.MonkeyPatch
SEEDS = range(1440, 1590)
TARGETS = [*range(1358, 1478), 1495, 1550, 1643, 1708]


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("downstream", range(20)),
        ("keys", range(60)),
        ("rates", range(2000, 2060)),
        ("retry", range(50)),
        ("slots", range(100)),
        ("token", range(60)),
    ],
)
def test_every_guarantee_holds_in_random_schedules(kind: str, seeds: Iterable[int]) -> None:
    assert first_broken(small_worlds.RANDOM_WORLDS[kind], seeds) == ("", -1)


def test_children_and_callers_in_random_schedules_which_enter_every_state() -> None:
    assert first_broken(random_slots.random_world_of_targets, TARGETS) == ("", -1)
    dynamodb_is_down_when_the_work_ends()
    assert workflow.entered >= states().keys()


def dynamodb_is_down_when_the_work_ends() -> None:
    """A schedule in which the outcome of a request cannot be recorded, which random ones seldom have."""
    world = SlotsWorld(Plan((Sent("a"),), run_seconds=(60,), first_run=60))
    while not any(actor.question.operation == "wait_for_end" for actor in world.actors.values()):
        world.take((world.steps() or world.time_steps())[0])
    world.take(Choice("outage", "dynamodb", is_fault=True))
    while choices := world.steps() or world.time_steps():
        world.take(choices[0])
    world.check_end()


# Controls ----------------------------------------------------------------------------------------------------------


_EVERY_PROCESS = Processes.all


@pytest.mark.parametrize(
    ("remove", "broken"),
    [
        pytest.param(
            all_of(set_to(Janitor, "run", lambda _: RunReport()), set_to(ClosedExecutions, "handle", lambda *_: None)),
            ("S3", "S4", "S6", "END"),
            id="f16_no_janitor",
        ),
        pytest.param(
            set_to(Processes, "all", lambda self: islice(_EVERY_PROCESS(self), 1)),
            ("S3", "S4", "S6", "END"),
            id="only_the_first_process",
        ),
        pytest.param(
            set_to(Outcomes, "failed", lambda *_: True), ("S3", "S4", "S7"), id="no_outcome_of_aborted_requests"
        ),
        pytest.param(set_to(Process, "expired_leases", lambda *_: {}), ("S4",), id="no_removal_of_expired_leases"),
    ],
)
def test_without_its_guard_a_random_schedule_breaks(
    remove: Remove, broken: tuple[str, ...], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, seed = first_broken(random_slots.random_world, range(3000, 3500))
    assert name in broken, f"seed {seed}"


def freed_later(seconds: int) -> Remove:
    """A holder counts as dead so much later than it should."""
    return set_to(janitor, "judge", lambda of, execution, now, grace: judge(of, execution, now, grace + seconds))


@pytest.mark.parametrize(
    ("remove", "broken_property", "least", "given"),
    [
        (freed_later(1800), "S4", 0.05, {"aim": "deaths"}),
        (set_to(ClosedExecutions, "_free", lambda *_: None), "S4", 0.03, {"aim": "deaths"}),
        # Without status events, which would free the slot before the janitor's runs.
        (freed_later(60), "S4", 0.02, {"events_lost": True, "aim": "deaths"}),
        # The janitor waits for a Glue run that outlives its workflow, without stopping it.
        (set_to(GlueRuns, "stop", lambda *_: None), "S4", 0.02, {"aim": "deaths", "run_seconds": (1200,)}),
        (set_to(Janitor, "_dispatch", lambda *_: None), "S6", 0.05, {"has_doorbell": False}),
    ],
    ids=["half an hour late", "an event frees nothing", "a period late", "runs are not stopped", "no dispatch"],
)
def test_an_exceeded_time_bound_is_detected_in_many_schedules(
    remove: Remove, broken_property: str, least: float, given: dict[str, Any], monkeypatch: Patch
) -> None:
    def random_world(random: Random) -> SlotsWorld:
        return random_slots.random_world(random, **given)

    remove(monkeypatch)
    assert breaks(random_world, SEEDS, broken_property, times=int(least * len(SEEDS)))


@pytest.mark.parametrize(
    "remove",
    [
        set_to(plan, "milliseconds", lambda _: 10**15),
        all_of(
            *(set_to(module, "SAME_START", "rate = :rate AND next_start >= :seen_start") for module in (rate, grants)),
            replaced(grants, "GRANT_CONDITION", "grants = :seen", "grants >= :seen"),
        ),
        set_to(Rate, "interval", property(lambda self: 800 * self.seconds // self.count)),
    ],
    ids=["no check before the write", "another start after the read is ignored", "an interval that is too short"],
)
def test_without_a_guard_more_start_than_the_rate_allows(remove: Remove, monkeypatch: Patch) -> None:
    """S11, with clocks that differ."""
    remove(monkeypatch)
    assert breaks(random_slots.random_world_with_rate, range(400), "S11", 1)


def test_each_world_has_a_share_of_make_simulate() -> None:
    assert small_worlds.SHARES.keys() == small_worlds.RANDOM_WORLDS.keys()
