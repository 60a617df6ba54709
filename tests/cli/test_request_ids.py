"""The request ids of executions, and the holders of a request id."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Holder
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.request_ids import MAX_DESCRIBED, RequestIds, holders_of, request_id_of
from tests.cli.doctor_facts import process


class DescribedWorkflow:
    """A workflow that knows each execution whose name is not "unknown", and notes which ones were described."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def describe(self, name: str) -> Execution | None:
        self.described.append(name)
        return None if name == "unknown" else Execution(name, "RUNNING", None, f'{{"request_id": "id of {name}"}}')


def test_an_execution_is_described_once() -> None:
    workflow: Any = DescribedWorkflow()
    ids = RequestIds(workflow)
    for _ in range(2):
        assert ids.find(["p-1", "unknown"]) == {"p-1": "id of p-1"}
    assert sorted(workflow.described) == ["p-1", "unknown", "unknown"], "it may start later"


def test_a_search_describes_a_bounded_number_of_executions_and_the_next_one_the_rest() -> None:
    workflow: Any = DescribedWorkflow()
    ids, names = RequestIds(workflow), [f"p-{number}" for number in range(MAX_DESCRIBED + 1)]
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED
    assert len(ids.find(names)) == len(workflow.described) == MAX_DESCRIBED + 1


@pytest.mark.parametrize(
    ("given", "found"), [('{"request_id": "a"}', "a"), ("{}", None), ("[]", None), ("", None), ("not JSON", None)]
)
def test_the_request_id_in_the_input_of_an_execution(given: str, found: str | None) -> None:
    assert request_id_of(given) == found


def test_a_holder_is_found_by_request_id_and_by_execution_name() -> None:
    second = execution_name("p", "a", 2)
    holding = process(holders={second: Holder("RUNNING", 1, "", None, {})})
    for given in ("a", second):
        assert holders_of([process(name="other"), holding], given) == [(holding, second)]
    assert holders_of([holding], "b") == []
