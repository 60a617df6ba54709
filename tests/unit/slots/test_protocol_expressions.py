"""The workflow's writes to the slot table, from its definition, made on a table."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.protocol import Candidate
from tests.unit.conftest import NOW, Account
from tests.workflow.definition import states
from tests.workflow.interpreter import evaluate


def _do(account: Account, state: str, execution: str) -> dict[str, Any]:
    """Make a state's call, as an execution of this name."""
    known = {"context": {"Execution": {"Name": execution, "Input": {"process": "p"}}}}
    arguments = evaluate(states()[state]["Arguments"], known)
    answer: dict[str, Any] = account.dynamodb.update_item(**arguments | {"TableName": account.slot_table})
    return answer


def _refusal(account: Account, state: str, execution: str) -> str:
    """The error code of a state's call, or an empty text."""
    try:
        _do(account, state, execution)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_confirmed_holder_runs_the_job_of_its_process(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    _do(account, "ConfirmSlot", "p-1")
    holder = account.item().holders["p-1"]
    assert (holder.state, holder.target, account.item().slots_in_use) == ("RUNNING", "job", 1)


def test_f13_a_cancelled_reservation_is_not_confirmed(account: Account) -> None:
    """The janitor cancelled the reservation of a slow starter, whose execution starts later."""
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.slots.cancel("p", "p-1")
    account.slots.reserve(Candidate("p", "p-2"), NOW)
    assert _refusal(account, "ConfirmSlot", "p-1") == "ConditionalCheckFailedException"
    assert account.item().holders.keys() == {"p-2"}


@pytest.mark.parametrize("confirmed", [True, False])
def test_f5_a_slot_that_is_released_twice_is_released_once(account: Account, confirmed: bool) -> None:
    account.processes.set_limit("p", 2)
    for name in ("p-1", "p-2"):
        account.slots.reserve(Candidate("p", name), NOW)
    if confirmed:
        _do(account, "ConfirmSlot", "p-1")
    refusals = [_refusal(account, "ReleaseSlot", "p-1") for _ in range(2)]
    assert refusals == ["", "ConditionalCheckFailedException"]
    assert (account.item().slots_in_use, account.item().holders.keys()) == (1, {"p-2"})


def test_f5_a_release_after_the_janitors_changes_nothing(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    _do(account, "ConfirmSlot", "p-1")
    account.slots.release("p", "p-1", account.item().holders["p-1"].raw)
    account.slots.reserve(Candidate("p", "p-2"), NOW)
    assert _refusal(account, "ReleaseSlot", "p-1") == "ConditionalCheckFailedException"
    assert account.item().slots_in_use == 1
