"""The request ids of executions are described once, and a bounded number of them."""

from __future__ import annotations

from typing import Any

from slotkeeper.slots.executions import Execution
from slotkeeper_cli.request_ids import MAX_DESCRIBED, RequestIds


class DescribedWorkflow:
    """A workflow that knows each execution whose name is not "unknown", and notes which ones were described."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def describe(self, name: str) -> Execution | None:
        self.described.append(name)
        given = "[]" if name == "manual" else f'{{"request_id": "id of {name}"}}'
        return None if name == "unknown" else Execution(name, "RUNNING", None, given)


def test_an_execution_is_described_once() -> None:
    workflow: Any = DescribedWorkflow()
    ids = RequestIds(workflow)
    for _ in range(2):
        assert ids.find(["p-1", "manual", "unknown"]) == {"p-1": "id of p-1"}
    assert sorted(workflow.described) == ["manual", "p-1", "unknown", "unknown"], "the last may start later"


def test_a_search_describes_a_bounded_number_of_executions_and_the_next_one_the_rest() -> None:
    workflow: Any = DescribedWorkflow()
    ids, names = RequestIds(workflow), [f"p-{number}" for number in range(MAX_DESCRIBED + 1)]
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED + 1
