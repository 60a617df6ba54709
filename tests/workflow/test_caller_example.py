"""The message that examples/waiting-caller sends for an item."""

from __future__ import annotations

import json
from typing import Any

from dev.emulator.environment import ROOT
from slotkeeper.slots.request import Request, parse_request
from tests.unit.conftest import delivery
from tests.workflow.interpreter import evaluate

EXAMPLE = ROOT / "examples" / "waiting-caller" / "caller.asl.json"


def _sent(machine: str, execution: str, item: int = 0) -> Request:
    """The request of an item, as the state machine sends it."""
    definition: dict[str, Any] = json.loads(EXAMPLE.read_text().replace("${Process}", "imports"))
    arguments = definition["States"]["EachItem"]["ItemProcessor"]["States"]["RunInSlot"]["Arguments"]
    arn = f"arn:aws:states:eu-central-1:123456789012:execution:{machine}:{execution}"
    context = {
        "Execution": {"Name": execution, "Id": arn},
        "Map": {"Item": {"Index": item}},
        "Task": {"Token": f"token-{machine}-{execution}-{item}"},
    }
    sent = evaluate(arguments, {"context": context, "input": f"item {item}"})
    return parse_request(delivery(sent["MessageBody"], group=sent["MessageGroupId"]))


def test_the_longest_names_make_a_valid_request() -> None:
    assert _sent("m" * 80, "e" * 80, 9999).input == {"item": "item 9999"}


def test_the_request_ids_of_two_state_machines_whose_executions_have_one_name_differ() -> None:
    """Redriven requests have no token, so that only their ids keep them apart."""
    ids = {_sent(machine, "2026-11-23", item).request_id for machine in ("daily", "hourly") for item in range(2)}
    assert len(ids) == 4
