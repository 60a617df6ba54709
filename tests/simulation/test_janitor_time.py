"""Under any load, the janitor handles other processes within two periods, and keeps each request once."""

from __future__ import annotations

import pytest

from slotkeeper.slots import janitor
from slotkeeper.slots.janitor import Janitor
from tests.simulation import janitor_scenes as scenes
from tests.simulation.janitor_scenes import LOST_AT, Outcome, play
from tests.simulation.janitor_time import GRACE, LOOK_GAP, PERIOD, TIMEOUT, Account, Function
from tests.template.test_template import TEMPLATE

DEADLINE = LOST_AT + GRACE + 2 * PERIOD  # the latest time for the other process

LOADS = {
    "Glue does not answer": scenes.silent_glue,
    "7,000 dead holders of one process": lambda account: scenes.one_process(account, 7000),
    "8,000 old registrations": lambda account: scenes.old_registrations(account, 8000),
    "10,000 unsettled failures": lambda account: scenes.unsettled_failures(account, 10_000),
    "a search of 2,880 pages": scenes.a_long_search,
}
UNDELAYED = [name for name in LOADS if name not in ("Glue does not answer", "10,000 unsettled failures")]


def _other_process_is_handled(outcome: Outcome) -> bool:
    woken, kept = outcome.woken, outcome.kept
    return woken is not None and kept is not None and woken <= 2 * PERIOD and kept <= GRACE + 2 * PERIOD


def test_the_model_uses_the_times_of_the_template() -> None:
    assert TEMPLATE["Resources"]["JanitorFunction"]["Properties"]["Timeout"] == TIMEOUT
    parameters = TEMPLATE["Parameters"]
    assert parameters["JanitorSchedule"]["Default"] == "rate(1 minute)"
    assert (parameters["GraceSeconds"]["Default"], parameters["LookGapSeconds"]["Default"]) == (GRACE, LOOK_GAP)


@pytest.mark.parametrize("name", LOADS)
def test_other_processes_are_woken_and_settled_within_two_periods(name: str) -> None:
    outcome = play(LOADS[name], DEADLINE)
    assert _other_process_is_handled(outcome), outcome
    if name in UNDELAYED:  # no later than without the load
        assert outcome.freed is not None
        assert outcome.freed <= GRACE + 2 * PERIOD
    assert (outcome.most_kept, outcome.concurrent) == (1, 1)
    assert "timed out" not in outcome.ended


def test_dead_holders_are_freed_after_glue_answers_again() -> None:
    outcome = play(scenes.silent_glue, 3600)
    assert outcome.all_freed is not None
    assert outcome.all_freed <= 1800 + 3 * PERIOD


def test_after_mass_failures_all_slots_are_free_within_ten_minutes() -> None:
    def all_free(account: Account) -> bool:
        return len(account.freed) == 10_001

    outcome = play(scenes.many_processes, 3600, enough=all_free)
    assert outcome.all_freed is not None
    assert outcome.all_freed < 600


def test_a_search_too_long_for_one_run_is_completed_by_several() -> None:
    """A search that begins again in every run would never free the slot."""
    assert play(scenes.a_long_search, 3600).all_freed is not None


# Controls ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not end before Lambda's timeout."""
    monkeypatch.setattr(janitor, "RUN_SECONDS", 10**6)
    monkeypatch.setattr(janitor, "SETTLE_SECONDS", 10**6)
    monkeypatch.setattr(Janitor, "run", lambda self, _, run=Janitor.run: run(self))


def _one_process(account: Account) -> None:
    scenes.one_process(account, 3000)


@pytest.mark.usefixtures("runs_without_a_limit")
def test_control_runs_without_a_time_limit_are_stopped_by_lambda() -> None:
    assert play(_one_process, DEADLINE).ended["timed out"] > 0


@pytest.mark.usefixtures("runs_without_a_limit")
def test_control_without_the_lease_runs_overlap() -> None:
    assert play(_one_process, 600, lambda account: Function(account, lease=False)).concurrent > 1
    assert play(_one_process, 600).concurrent == 1


def test_control_settling_one_process_after_the_other_delays_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settlements in the order of their executions' ends, without turns of processes."""
    monkeypatch.setattr("slotkeeper.slots.settlement.in_turns", lambda work, _: list(work))
    outcome = play(lambda account: scenes.one_process(account, 7000), DEADLINE)
    assert outcome.kept is None or outcome.kept > GRACE + 2 * PERIOD
