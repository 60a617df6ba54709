"""The page of costs uses the numbers of calls that a request makes in the simulation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.simulation.slots_actors import BELLS, ENDINGS, REQUESTS, ROWS, SLOTS
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import SlotsWorld

COSTS = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()


class CountingWorld(SlotsWorld):
    """Counts all calls, each with its table or queue."""

    counted: Counter[tuple[str, str]]

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].question
        given = question.parameters
        self.counted[question.operation, given.get("TableName") or given.get("QueueUrl", "")] += 1
        super().call(name, how)


def calls_of(requests: str) -> Counter[tuple[str, str]]:
    """The calls for these requests of one process with one slot, without a fault."""
    world = CountingWorld(Plan(tuple(map(Sent, requests)), event_steps=True))
    world.counted = Counter()
    while choices := world.steps() or world.time_steps():
        world.take(choices[0])
    world.check_end()
    return world.counted


def test_a_waiting_request_makes_the_calls_that_the_page_of_costs_states() -> None:
    calls = calls_of("abcd") - calls_of("abc")
    item_writes, item_reads = calls["update_item", SLOTS], calls["get_item", SLOTS]
    assert f"confirm, release (1 KB: ten holders) | 1,000 x {item_writes} x" in COSTS
    # Accept; the mark of the start, the outcome, and the mark that its end is published.
    assert (calls["put_item", ROWS], calls["update_item", ROWS]) == (1, 3)
    queue, bodies = calls["query", ROWS], calls["batch_get_item", ""]
    assert f"reads: item twice, queue, body | 1,000 x {item_reads + queue + bodies} x" in COSTS
    assert f"read of the row, to publish its end | 1,000 x {calls['get_item', ROWS]} x" in COSTS
    received, sent = 1, 1  # the service's call and the submitter's
    assert (
        f"RequestQueue: send, receive, delete | 1,000 x {calls['delete_message', REQUESTS] + received + sent} x"
        in COSTS
    )
    rings = calls["send_message", BELLS] + calls["delete_message", BELLS] + received
    assert f"DispatchQueue: ring, receive, delete | 1,000 x {rings} x" in COSTS
    of_an_end = calls["delete_message", ENDINGS] + received + sent
    assert f"EndingQueue: status event, receive, delete | 1,000 x {of_an_end} x" in COSTS
    assert calls["start_execution", ""] == calls["start_job_run", ""] == calls["put_events", ""] == 1
