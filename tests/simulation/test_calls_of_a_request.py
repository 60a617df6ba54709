"""The page of costs uses the numbers of calls that a request makes in the simulation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.transcript import Program

COSTS = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()


class CountingWorld(SlotsWorld):
    """Counts all calls except the janitor's."""

    counted: Counter[str]

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].question
        if name != "scheduled run":
            self.counted[question.operation] += 1
        super().call(name, how)


def calls_of(requests: str) -> Counter[str]:
    """The calls for these requests of one process with one slot, without a fault."""
    world = CountingWorld(Plan(tuple(requests), run_seconds=(60,)))
    world.counted = Counter()
    Program.merges = False
    while choices := world.steps() or world.time_steps():
        world.take(choices[0])
    world.check_end()
    return world.counted


def test_a_waiting_request_makes_the_calls_that_the_page_of_costs_states() -> None:
    calls = calls_of("abcd") - calls_of("abc")
    assert f"x {calls['update_item']} x $0.000000625" in COSTS
    assert f"x {calls['get_item']} x $0.000000125" in COSTS
    received, sent = 2, 1  # the service's calls and the submitter's
    sqs = calls["change_message_visibility"] + calls["delete_message"] + received + sent
    assert f"x {sqs} x $0.0000005 " in COSTS
    assert calls["start_execution"] == calls["start_job_run"] == calls["put_events"] == 1
