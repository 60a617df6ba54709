"""The requests that the page on nightly jobs sends from EventBridge Scheduler and from a state machine."""

from __future__ import annotations

import json
import re

from dev.emulator.environment import ROOT
from slotkeeper.slots.request import parse_request
from tests.unit.conftest import delivery
from tests.workflow.interpreter import evaluate

PAGE = (ROOT / "docs" / "nightly-jobs.md").read_text()
SCHEDULE, STATE = map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))


def test_the_schedule_sends_a_request_that_skips() -> None:
    request = parse_request(delivery(SCHEDULE["MessageBody"], group=SCHEDULE["MessageGroupId"]))
    assert request.when_busy == "skip"
    assert request.request_id == "<aws.scheduler.scheduled-time>"  # a second delivery is the same request


def test_the_state_machine_sends_a_request_that_starts_within_six_hours() -> None:
    context = {"Execution": {"Name": "2026-11-28", "StartTime": "2026-11-28T01:00:00.500Z"}}
    sent = evaluate(STATE["Arguments"], {"context": context})
    request = parse_request(delivery(sent["MessageBody"], group=sent["MessageGroupId"]))
    assert request.start_before == "2026-11-28T07:00:00.500Z"
    assert request.deadline == 1_795_849_200.5
