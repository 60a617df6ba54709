"""Every guarantee holds in random schedules. Without a guard that small worlds do not need, one of them breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from tests.simulation.world_runs import breaks, first_broken
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


def f16_no_janitor(patch: Patch) -> None:
    patch.setattr(Janitor, "run", lambda _: RunReport())
    patch.setattr(ClosedExecutions, "handle", lambda *_: None)


def only_the_first_process(patch: Patch) -> None:
    every = Processes.all
    patch.setattr(Processes, "all", lambda self: islice(every(self), 1))


def no_outcome_of_aborted_requests(patch: Patch) -> None:
    patch.setattr(Outcomes, "failed", lambda *_: True)


def no_removal_of_expired_leases(patch: Patch) -> None:
    patch.setattr(Process, "expired_leases", lambda *_: {})


@pytest.mark.parametrize(
    ("remove", "broken"),
    [
        (f16_no_janitor, ("S3", "S4", "S6", "END")),
        (only_the_first_process, ("S3", "S4", "S6", "END")),
        (no_outcome_of_aborted_requests, ("S3", "S4", "S7")),
        (no_removal_of_expired_leases, ("S4",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_random_schedule_breaks(
    remove: Callable[[Patch], None], broken: tuple[str, ...], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, seed = first_broken(random_slots.random_world, range(3000, 3500))
    assert name in broken, f"seed {seed}"


def freed_half_an_hour_late(patch: Patch) -> None:
    """A holder counts as dead half an hour later than it should."""
    patch.setattr(janitor, "judge", lambda holder, execution, now, grace: judge(holder, execution, now, grace + 1800))


def freed_one_period_late(patch: Patch) -> None:
    patch.setattr(janitor, "judge", lambda holder, execution, now, grace: judge(holder, execution, now, grace + 60))


def an_event_frees_nothing(patch: Patch) -> None:
    patch.setattr(ClosedExecutions, "_free", lambda *_: None)


def glue_runs_are_not_stopped(patch: Patch) -> None:
    """The janitor waits for a Glue run that outlives its workflow, without stopping it."""
    patch.setattr(GlueRuns, "stop", lambda *_: None)


def no_dispatch_by_the_janitor(patch: Patch) -> None:
    patch.setattr(Janitor, "_dispatch", lambda *_: None)


@pytest.mark.parametrize(
    ("remove", "broken_property", "least", "given"),
    [
        (freed_half_an_hour_late, "S4", 0.05, {"aim": "deaths"}),
        (an_event_frees_nothing, "S4", 0.03, {"aim": "deaths"}),
        # Without status events, which would free the slot before the janitor's runs.
        (freed_one_period_late, "S4", 0.02, {"events_lost": True, "aim": "deaths"}),
        (glue_runs_are_not_stopped, "S4", 0.02, {"aim": "deaths", "run_seconds": (1200,)}),
        (no_dispatch_by_the_janitor, "S6", 0.05, {"has_doorbell": False}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_exceeded_time_bound_is_detected_in_many_schedules(
    remove: Callable[[Patch], None], broken_property: str, least: float, given: dict[str, Any], monkeypatch: Patch
) -> None:
    def random_world(random: Random) -> SlotsWorld:
        return random_slots.random_world(random, **given)

    remove(monkeypatch)
    assert breaks(random_world, SEEDS, broken_property, times=int(least * len(SEEDS)))


def no_check_before_the_write(patch: Patch) -> None:
    patch.setattr(plan, "milliseconds", lambda _: 10**15)


def another_start_after_the_read_is_ignored(patch: Patch) -> None:
    for module in (rate, grants):
        patch.setattr(module, "SAME_START", "rate = :rate AND next_start >= :seen_start")
    patch.setattr(grants, "GRANT_CONDITION", grants.GRANT_CONDITION.replace("grants = :seen", "grants >= :seen"))


def an_interval_that_is_too_short(patch: Patch) -> None:
    patch.setattr(Rate, "interval", property(lambda self: 800 * self.seconds // self.count))


@pytest.mark.parametrize(
    "remove", [no_check_before_the_write, another_start_after_the_read_is_ignored, an_interval_that_is_too_short]
)
def test_without_a_guard_more_start_than_the_rate_allows(remove: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """S11, with clocks that differ."""
    remove(monkeypatch)
    assert breaks(random_slots.random_world_with_rate, range(400), "S11", 1)


def test_each_world_has_a_share_of_make_simulate() -> None:
    assert small_worlds.SHARES.keys() == small_worlds.RANDOM_WORLDS.keys()
