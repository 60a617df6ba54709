"""The requests that the example of a waiting caller and the page on nightly jobs send are valid."""

from __future__ import annotations

import json
import re
from typing import Any

from dev.emulator.environment import ROOT
from slotkeeper.slots.request import Request, parse_request
from tests.unit.conftest import delivery
from tests.workflow.interpreter import evaluate

CALLER = ROOT / "examples" / "waiting-caller" / "caller.asl.json"
PAGE = (ROOT / "docs" / "nightly-jobs.md").read_text()
SCHEDULE, STATE = map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))


def _parsed(message: dict[str, Any]) -> Request:
    return parse_request(delivery(message["MessageBody"], group=message["MessageGroupId"]))


def _of_item(machine: str, execution: str, item: int = 0) -> Request:
    """The request of an item of the waiting caller's Map."""
    definition: dict[str, Any] = json.loads(CALLER.read_text().replace("${Process}", "imports"))
    arguments = definition["States"]["EachItem"]["ItemProcessor"]["States"]["RunInSlot"]["Arguments"]
    arn = f"arn:aws:states:eu-central-1:123456789012:execution:{machine}:{execution}"
    context = {
        "Execution": {"Name": execution, "Id": arn},
        "Map": {"Item": {"Index": item}},
        "Task": {"Token": f"token-{machine}-{execution}-{item}"},
    }
    return _parsed(evaluate(arguments, {"context": context, "input": f"item {item}"}))


def test_the_longest_names_make_a_valid_request() -> None:
    assert _of_item("m" * 80, "e" * 80, 9999).input == {"item": "item 9999"}


def test_the_request_ids_of_two_state_machines_whose_executions_have_one_name_differ() -> None:
    """Redriven requests have no token, so that only their ids keep them apart."""
    ids = {_of_item(machine, "2026-11-23", item).request_id for machine in ("daily", "hourly") for item in range(2)}
    assert len(ids) == 4


def test_the_schedule_sends_a_request_that_skips() -> None:
    request = _parsed(SCHEDULE)
    assert request.when_busy == "skip"
    assert request.request_id == "<aws.scheduler.scheduled-time>"  # a second delivery is the same request


def test_the_state_machine_sends_a_request_that_starts_within_six_hours() -> None:
    context = {"Execution": {"Name": "2026-11-28", "StartTime": "2026-11-28T01:00:00.500Z"}}
    request = _parsed(evaluate(STATE["Arguments"], {"context": context}))
    assert request.start_before == "2026-11-28T07:00:00.500Z"
    assert request.deadline == 1_795_849_200.5
