"""The end of a request on DynamoDB Local: outcomes, redrives, discards, returns and cancellations at the same instant.

Each writer has its own client. A control lacks the conditions that let one writer win.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.aws.dynamodb import Table, number
from slotkeeper.slots import outcomes, returns
from slotkeeper.slots.intake import accept
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.returns import Requeued, Requeues
from tests.deployed.races.client_threads import Change, changed
from tests.deployed.races.shared_token import simultaneously
from tests.simulation.account.tables import create_table
from tests.simulation.aws.dynamodb import INDEXES
from tests.workflow.case import CONTEXT
from tests.workflow.interpreter import STATES

ROWS, SLOTS = "ending-rows", "ending-slots"
WRITERS, ROUNDS, CONTROL_ROUNDS = 4, 10, 100
NOW = 1_800_000_000.0


class Ends:
    """Requests of the process `p`, and writers of their ends."""

    def __init__(self, engine: DynamoDbLocal) -> None:
        self.dynamodb, *clients = (engine.client() for _ in range(1 + WRITERS))
        create_table(self.dynamodb, ROWS, "process_name", "execution", INDEXES["requests"])
        create_table(self.dynamodb, SLOTS, "process_name")
        item = {"process_name": {"S": "p"}, "grants": number(1), "holders": {"M": {}}}
        self.dynamodb.put_item(TableName=SLOTS, Item=item)
        self.rows, self._ids = Table(self.dynamodb, ROWS, "process_name", "execution"), itertools.count(1)
        self.queue = RequestTable(self.dynamodb, ROWS, SLOTS)
        self.outcomes = [Outcomes(client, ROWS) for client in clients]
        self.requeues = [Requeues(client, ROWS, SLOTS, 86400) for client in clients]

    def request(self, *, has_failed: bool = False) -> tuple[str, str]:
        """The executions of a new request and of its next attempt. Its failure is published."""
        request = Request("p", {}, f"order-{next(self._ids)}")
        accept(self.queue, request, "m", NOW, "1", NOW)
        name = request.execution_name
        if has_failed:
            self.outcomes[0].failed("p", name, NOW, "Error", "why")
            self.rows.update(("p", name), "REMOVE #open", "attribute_exists(#open)", None, {"#open": "open"})
        return name, execution_name("p", request.request_id, 2)

    def record_as_the_workflow(self, name: str, state: str) -> None:
        known = {"run_state": state, "failure": {"error": "Own", "cause": "why"}, "caller": "NONE", "answer": ""}
        write: dict[str, Any] = STATES["RecordOutcome"].value("Arguments", CONTEXT, known)
        self.dynamodb.update_item(**write | {"TableName": ROWS, "Key": self.rows.key(("p", name))})


@pytest.fixture(scope="module")
def ends(dynamodb_local: DynamoDbLocal) -> Ends:
    return Ends(dynamodb_local)


def an_outcome_is_replaced(state: str, ends: Ends) -> bool:
    """The workflow records, and so do functions of endings and the janitor, which know less."""
    name, _ = ends.request()
    works = [partial(each.failed, "p", name, NOW, "ABORTED", "why") for each in ends.outcomes]
    _, *recorded = simultaneously([partial(ends.record_as_the_workflow, name, state), *works])
    row = ends.rows.read(("p", name))
    code = row.get("code", {"S": "Own"})["S"]  # a success has none
    return (row["state"]["S"], code) != (state, "Own") or sum(map(bool, recorded)) > 1


def it_is_redriven_twice(ends: Ends) -> bool:
    name, _ = ends.request(has_failed=True)
    done = simultaneously([partial(each.redrive, "p", [name], NOW) for each in ends.requeues])
    return sum(isinstance(each[name], Requeued) for each in done) != 1


def another_attempt_follows_its_end(state: str, ends: Ends) -> bool:
    """A failure is redriven and discarded, or a queued request given back and cancelled."""
    name, again = ends.request(has_failed=state == "FAILED")
    one, other = ends.requeues[:2]
    works: list[Callable[[], Any]] = [partial(one.redrive, "p", [name], NOW), partial(other.discard, "p", name)]
    if state == "QUEUED":
        leaving = [Leaving(name, "CANCELLED", "Cancelled", "why")]
        works = [partial(one.give_back, "p", name, NOW), partial(ends.queue.leave, "p", leaving, NOW)]
    _, has_ended = simultaneously(works)
    return bool(has_ended) == bool(ends.rows.read(("p", again)))


RACES: dict[str, Callable[[Ends], bool]] = {
    "success": partial(an_outcome_is_replaced, "SUCCEEDED"),
    "failure": partial(an_outcome_is_replaced, "FAILED"),
    "redrives": it_is_redriven_twice,
    "discard": partial(another_attempt_follows_its_end, "FAILED"),
    "cancellation": partial(another_attempt_follows_its_end, "QUEUED"),
}
SEEN, ANY = "#state = :seen", "(#state = :seen OR attribute_exists(execution))"
HAS_BODY = " AND attribute_exists(body)"
CONTROLS: list[tuple[str, list[Change]]] = [
    ("failure", [("FAILURE_CONDITION", "#state IN", "attribute_exists(execution) OR #state IN")]),
    ("redrives", [("REDRIVEN_CONDITION", SEEN, ANY), ("REDRIVEN_CONDITION", HAS_BODY, "")]),
    ("discard", [("REDRIVEN_CONDITION", HAS_BODY, "")]),
    ("discard", [("DISCARD_CONDITION", "attribute_exists(failed)", "attribute_exists(execution)")]),
    ("cancellation", [("RETURNED_CONDITION", SEEN, ANY), ("NO_HOLDER_CONDITION", "grants = ", "grants >= ")]),
]


@pytest.mark.parametrize("race", RACES)
def test_s7_a_request_has_one_end(race: str, ends: Ends) -> None:
    assert not any(RACES[race](ends) for _ in range(ROUNDS))


@pytest.mark.parametrize(("race", "changes"), CONTROLS)
def test_control_without_its_condition_a_request_has_two_ends(
    race: str, changes: list[Change], ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    if race == "redrives":  # the row of the next attempt, which has the same name, is the second protection
        monkeypatch.setattr(Requeues, "_added", lambda _, row: {"Put": {"TableName": ROWS, "Item": row}})
    with changed(outcomes if race == "failure" else returns, changes):
        assert any(RACES[race](ends) for _ in range(CONTROL_ROUNDS))
