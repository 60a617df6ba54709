"""docs/leases.md: its examples run, and its policy permits the calls of a lease and no others."""

from __future__ import annotations

import json
import re

import pytest

from dev.emulator.environment import ROOT
from slotkeeper import slots
from slotkeeper.slots import leases
from tests.support.boundary import Calls
from tests.unit.conftest import Account
from tests.unit.slots.lease_scene import LeaseScene

PAGE = (ROOT / "docs" / "leases.md").read_text()


def test_the_pages_examples_hold_a_slot(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.processes.create("licence", 1, "none")
    monkeypatch.setattr(leases, "_leases_of", lambda *_: LeaseScene(account).leases)
    monkeypatch.setenv("SLOT_TABLE_NAME", account.slot_table)
    held: list[int] = []

    def use(*_: object) -> None:
        held.append(account.item("licence").slots_in_use)

    context = LeaseScene(account).invocation(30)
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, {"context": context, "call_the_api": use, "work": range(2), "step": use, "slots": slots})
    assert held == [1, 1, 1]
    assert account.item("licence").slots_in_use == 0


def test_the_pages_policy_grants_the_calls_of_a_lease_and_no_others(account: Account) -> None:
    scene = LeaseScene(account)
    made = Calls(account.dynamodb, account.sqs).made
    with scene.leases.lease("p", seconds=60) as lease:
        lease.extend(70)
    scene.expired()
    with scene.leases.lease("p", seconds=60):
        calls = list(made)
        account.wait_in_queue()
        made[:] = calls  # not those of the queued request
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    granted = {action.partition(":")[2] for each in json.loads(policy)["Statement"] for action in each["Action"]}
    assert set(made) == granted


def test_the_pages_policy_permits_the_items_of_named_processes_alone() -> None:
    """Without the condition, a caller of leases could change every process, and read other callers' task tokens."""
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (of_table,) = (each for each in json.loads(policy)["Statement"] if "dynamodb:GetItem" in each["Action"])
    assert of_table["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["licence"]}}
