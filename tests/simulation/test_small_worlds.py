"""Every guarantee holds in each state of the small worlds.

The worlds with more states are in short_worlds.py and `make simulate`. The controls are in tests/guards.
"""

from __future__ import annotations

import pytest

from tests.simulation import slots_actors, slots_state
from tests.simulation.small_worlds import SMALL, Effort
from tests.simulation.world_runs import first_violation
from tests.template.parsing import parsed_template
from tests.workflow import interpreter

Patch = pytest.MonkeyPatch


def of_effort(effort: Effort) -> list[str]:
    """The worlds of an effort."""
    return [name for name, small in SMALL.items() if small.effort is effort]


def search(name: str) -> None:
    small = SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")


@pytest.mark.parametrize("name", of_effort(Effort.QUICK))
def test_every_guarantee_holds_in_every_state(name: str) -> None:
    search(name)


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
    for queue in ("RequestQueue", "DispatchQueue"):
        assert resources[queue]["Properties"]["VisibilityTimeout"] == slots_actors.VISIBILITY
    assert resources["StarterFunction"]["Properties"]["Timeout"] == slots_state.TIMEOUT
    assert resources["EndingQueue"]["Properties"]["VisibilityTimeout"] == slots_actors.ENDING_VISIBILITY
