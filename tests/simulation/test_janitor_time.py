"""Whatever the janitor finds, other processes are woken and settled within two periods, and each request kept once."""

from __future__ import annotations

import pytest

from slotkeeper.slots import janitor
from slotkeeper.slots.janitor import Janitor
from tests.simulation import janitor_scenes as scenes
from tests.simulation.janitor_scenes import LOST_AT, Outcome, play
from tests.simulation.janitor_time import GRACE, LOOK_GAP, PERIOD, TIMEOUT, Account, Function
from tests.template.test_template import TEMPLATE

SERVED = LOST_AT + GRACE + 2 * PERIOD  # by then the other process has to be served

TROUBLES = {
    "Glue does not answer": scenes.silent_glue,
    "10,000 dead holders of one process": scenes.one_process,
    "16,000 old registrations": scenes.old_registrations,
    "a fortnight's failures": lambda account: scenes.a_fortnights_failures(account, 30_000),
    "a search of 2,880 pages": scenes.a_long_search,
}
FAIR = [name for name in TROUBLES if name not in ("Glue does not answer", "a fortnight's failures")]


def _others_are_served(outcome: Outcome) -> bool:
    woken, kept = outcome.woken, outcome.kept
    return woken is not None and kept is not None and woken <= 2 * PERIOD and kept <= GRACE + 2 * PERIOD


def test_the_models_times_are_the_templates() -> None:
    assert TEMPLATE["Resources"]["JanitorFunction"]["Properties"]["Timeout"] == TIMEOUT
    parameters = TEMPLATE["Parameters"]
    assert parameters["JanitorSchedule"]["Default"] == "rate(1 minute)"
    assert (parameters["GraceSeconds"]["Default"], parameters["LookGapSeconds"]["Default"]) == (GRACE, LOOK_GAP)


@pytest.mark.parametrize("name", TROUBLES)
def test_others_are_woken_and_settled_within_two_periods(name: str) -> None:
    outcome = play(TROUBLES[name], SERVED)
    assert _others_are_served(outcome), outcome
    if name in FAIR:  # as if nothing else were dead
        assert outcome.freed is not None
        assert outcome.freed <= GRACE + 2 * PERIOD
    assert (outcome.most_kept, outcome.at_once) == (1, 1)
    assert "timed out" not in outcome.ended


def test_a_glue_that_answers_again_has_its_holders_freed() -> None:
    outcome = play(scenes.silent_glue, 3600)
    assert outcome.all_freed is not None
    assert outcome.all_freed <= 1800 + 3 * PERIOD


def test_after_mass_failures_all_slots_are_free_within_ten_minutes() -> None:
    def all_free(account: Account) -> bool:
        return len(account.freed) == 10_001

    outcome = play(scenes.many_processes, 3600, enough=all_free)
    assert outcome.all_freed is not None
    assert outcome.all_freed < 600


def test_a_search_that_no_single_run_can_end_is_ended() -> None:
    """It was begun anew in every run, and the slot was never free."""
    assert play(scenes.a_long_search, 3600).all_freed is not None


# Controls ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have no end of their own."""
    monkeypatch.setattr(janitor, "RUN_SECONDS", 10**6)
    monkeypatch.setattr(janitor, "SETTLE_SECONDS", 10**6)
    monkeypatch.setattr(Janitor, "run", lambda self, _, run=Janitor.run: run(self))


def _small(account: Account) -> None:
    scenes.one_process(account, 3000)


@pytest.mark.usefixtures("endless")
def test_control_without_an_end_of_their_own_runs_are_stopped() -> None:
    assert play(_small, SERVED).ended["timed out"] > 0


@pytest.mark.usefixtures("endless")
def test_control_without_the_lease_runs_overlap() -> None:
    assert play(_small, 600, lambda account: Function(account, lease=False)).at_once > 1
    assert play(_small, 600).at_once == 1


def test_control_one_process_after_the_other_keeps_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settlements in the order of their ends, and no turns."""
    monkeypatch.setattr("slotkeeper.slots.settlement.in_turns", lambda work, _: list(work))
    outcome = play(lambda account: scenes.one_process(account, 7000), SERVED)
    assert outcome.kept is None or outcome.kept > GRACE + 2 * PERIOD
