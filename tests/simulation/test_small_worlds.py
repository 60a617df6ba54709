"""Every guarantee holds in each state of the small worlds, and so does the operator command's explanation of a wait.

The worlds with more states are in short_worlds.py and `make simulate`. The controls are in test_controls_of_*.py.
"""

from __future__ import annotations

import pytest

from slotkeeper_cli import conditions
from tests.simulation import slots_actors, slots_state
from tests.simulation.explained import note_items, wrong_explanations
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.small_worlds import SMALL, Effort
from tests.simulation.transcript import Program
from tests.simulation.world_runs import first_violation
from tests.support.template import parsed_template
from tests.workflow import interpreter

Patch = pytest.MonkeyPatch


def others(effort: Effort) -> list[str]:
    """The worlds of an effort without those of slots alone."""
    return [name for name, small in SMALL.items() if small.effort is effort and name not in of_slots(effort)]


def of_slots(effort: Effort) -> list[str]:
    """Those of which each state is compared with the operator command's explanation."""
    return [name for name, small in SMALL.items() if small.effort is effort and type(small.make()) is SlotsWorld]


def search(name: str) -> None:
    small = SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")


def search_and_explain(name: str, patch: Patch) -> None:
    items = note_items(patch)
    search(name)
    assert not list(wrong_explanations(items))


@pytest.mark.parametrize("name", others(Effort.QUICK))
def test_every_guarantee_holds_in_every_state(name: str) -> None:
    search(name)


@pytest.mark.parametrize("name", of_slots(Effort.QUICK))
def test_s1_to_s8_hold_and_the_explanation_is_right_in_every_state(name: str, monkeypatch: Patch) -> None:
    search_and_explain(name, monkeypatch)


def test_a_child_with_a_large_output_has_succeeded_even_if_states_all_does_not_catch_the_error(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(interpreter, "ALL_CATCHES_DATA_LIMIT", False)  # the world itself: it does
    small = SMALL["child with a large output, a caller"]
    assert first_violation(small.make, small.faults) == ("", "")


def test_the_worlds_use_the_times_of_the_template() -> None:
    template = parsed_template()
    parameters, resources = template["Parameters"], template["Resources"]
    assert parameters["JanitorSchedule"]["Default"] == "rate(1 minute)"
    assert slots_state.PERIOD == 60
    assert parameters["GraceSeconds"]["Default"] == slots_state.GRACE
    assert parameters["CheckGapSeconds"]["Default"] == slots_state.CHECK_GAP
    queue = resources["RequestQueue"]["Properties"]
    assert queue["VisibilityTimeout"] == slots_actors.VISIBILITY
    assert queue["MessageRetentionPeriod"] == slots_actors.RETENTION
    assert queue["RedrivePolicy"]["maxReceiveCount"] == slots_actors.MOST_RECEIVES
    # All bounds in time are multiples of the clock's step.
    for seconds in (slots_state.PERIOD, slots_state.GRACE, slots_state.CHECK_GAP):
        assert seconds % slots_state.STEP == 0


@pytest.mark.parametrize("name", ["1 request, 1 slot, cancelled", "token, 3 clients, clocks apart, one dies"])
def test_merged_histories_continue_in_the_same_way(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Program, "merged", [])
    small = SMALL[name]
    first_violation(small.make, small.faults)
    assert Program.merged
    for history, known in Program.merged[:: max(1, len(Program.merged) // 300)]:
        assert history.behaves_as(known), (history.answers, known.answers)


def test_an_explanation_without_a_condition_is_wrong_in_a_state(monkeypatch: Patch) -> None:
    items = note_items(monkeypatch)  # of processes with pauses, weights, priorities, limits and cancellations
    for name in ("weight 3, 2 slots, then 3", "1 request, 1 slot, cancelled", "process for leases, a request"):
        assert first_violation(SMALL[name].make, SMALL[name].faults) == ("", "")
    for part in ("_never", "_by_operator", "_occupied", "counting"):
        with monkeypatch.context() as patch:
            patch.setattr(conditions, part, lambda *_: iter(()))
            assert any(wrong_explanations(items)), part
