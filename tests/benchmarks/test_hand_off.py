"""The hand-off benchmark without an engine: the polling variants, and the figures from records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks.hand_off.hand_off_benchmark import goals
from dev.benchmarks.hand_off.hand_off_designs import POLLING_CODE, WAKE_STATES, without_wake
from dev.benchmarks.hand_off.hand_off_figures import Execution, Window, expected, read_executions, read_invocations
from dev.emulator.environment import ROOT
from dev.scenarios.runner.scenario import CannotContinue

WORKFLOW = ROOT / "statemachines" / "slot_workflow.asl.json"


def test_the_polling_workflow_is_the_deployed_one_without_its_wake() -> None:
    deployed = json.loads(WORKFLOW.read_text())["States"]
    polling = json.loads(without_wake(WORKFLOW.read_text(), "${RequestQueueUrl}", "http://own-queue"))["States"]
    assert deployed.keys() - polling.keys() == set(WAKE_STATES)
    release = polling["ReleaseSlot"]
    assert [release["Next"], *(catch["Next"] for catch in release["Catch"])] == ["ChooseOutcome"] * 2
    changed = {name for name, state in polling.items() if state != deployed[name]}
    assert changed == {"ReleaseSlot", "ReturnRequest"}  # the latter has its own queue


def test_a_workflow_whose_wake_has_another_form_is_refused() -> None:
    machine = json.loads(WORKFLOW.read_text())
    del machine["States"][WAKE_STATES[0]]
    text = WORKFLOW.read_text().replace('"Default": "ReleaseSlot"', '"Default": "WakeWaiting"')
    for other, message in ((json.dumps(machine), WAKE_STATES[0]), (text, "another way")):
        with pytest.raises(CannotContinue, match=message):
            without_wake(other, "${RequestQueueUrl}", "http://own-queue")


def test_the_polling_starter_finds_every_step_that_it_replaces(tmp_path: Path) -> None:
    """In a process of its own, since it changes the layer."""
    (tmp_path / "app.py").write_text("handler = None\n")
    paths = (tmp_path, ROOT / "layers" / "slotkeeper", POLLING_CODE.parent)
    code = (
        "import polling_starter\nfrom slotkeeper.slots import admission\n"
        "assert admission.hide_seconds(1, 2, 3) == 30 and admission.wake_next(1, 2, 3) is False"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "POLL_SECONDS": "30"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Pages:
    """A client whose paginators return one page."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages

    def get_paginator(self, name: str) -> Any:
        page = self.pages[name]
        return type("Paginator", (), {"paginate": staticmethod(lambda **_: [page])})


def test_an_execution_has_the_times_of_its_release() -> None:
    def at(seconds: float) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    events = [
        {"timestamp": at(1), "stateEnteredEventDetails": {"name": "RunGlueJob"}},
        {"timestamp": at(2), "stateEnteredEventDetails": {"name": "ReleaseSlot"}},
        {"timestamp": at(3), "stateExitedEventDetails": {"name": "ReleaseSlot"}},
    ]
    listed = [{"name": "e", "executionArn": "arn", "startDate": at(0)}]
    client = Pages(list_executions={"executions": listed}, get_execution_history={"events": events})
    zero = at(0).timestamp()
    assert read_executions(client, "arn") == [Execution("e", zero, zero + 2, zero + 3)]


def test_an_invocation_starts_its_duration_before_its_report() -> None:
    lines = [
        {"timestamp": 2000, "message": "REPORT RequestId: b\tDuration: 500 ms\tBilled Duration: 500 ms"},
        {"timestamp": 1000, "message": '{"message": "REPORT that a function wrote"}'},
    ]
    assert read_invocations(Pages(filter_log_events={"events": lines}), "group") == [1.5]


def test_only_whole_periods_of_polling_count() -> None:
    """Two slots and polls at 0, 10 and 20 s."""
    starts = [10.0 * (n // 2) + 0.1 * (n % 2) for n in range(6)]
    executions = [
        Execution(f"e{n}", start, start // 10 * 10 + 1.9, start // 10 * 10 + 2) for n, start in enumerate(starts)
    ]
    window = Window(executions, 0.0, 10, limit=2)
    assert window.whole == (0.0, 20.0)
    assert window.slots_used() == pytest.approx((1.9 + 1.8) * 2 / 40)
    assert [handoff.seconds for handoff in window.handoffs()] == pytest.approx([8.0, 8.1, 8.0, 8.1])
    assert window.invocations_per_request([0.05, 0.2, 10.0, 10.05, 10.2, 19.9, 20.3]) == 6 / 4


def test_expected_figures_of_polling() -> None:
    assert list(expected(30, 1.2, 4).values()) == pytest.approx([28.8, 0.04, 1.25])
    assert list(expected(5, 12, 4).values()) == pytest.approx([3, 0.8, 1.75])


@pytest.mark.parametrize(
    ("median", "used", "invocations", "met"),
    [
        (0.02, 0.97, 1.9, [True, True, True, True, True]),
        (1.0, 0.97, 1.9, [False, False, False, True, True]),
        (0.02, 0.94, 2.3, [True, True, True, False, False]),
    ],
)
def test_goals_are_judged_by_the_figures(median: float, used: float, invocations: float, met: list[bool]) -> None:
    one = {"median": median, "p99": 2 * median, "slots_used": used, "invocations": invocations}
    assert [goal.met for goal in goals({"wake": one, "wake-children": one})] == met
