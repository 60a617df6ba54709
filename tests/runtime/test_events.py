"""Every sample event in the real Lambda runtime: aws-lambda-rie and awslambdaric, and no Docker.

A function is started once, as a warm environment is, and called with its events one after the other: one test a
function, since a start costs more than all its calls.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.function_folders import own_module
from dev.tools.invoke.function_stack import events_of, folders
from dev.tools.invoke.invoke_command import own_stack
from dev.tools.invoke.lambda_runtime import Runtime
from tests.runtime.expected import EXPECTED
from tests.runtime.runtime_outcomes import Expectation, Outcome, wipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")


@pytest.mark.parametrize("function", folders())
def test_each_sample_event_has_its_outcome(
    aws: EmbeddedAws, tmp_path: Path, subtests: pytest.Subtests, function: str
) -> None:
    with (
        own_stack(aws, function) as (deployed, setup, receiver),
        Runtime(deployed.configuration, aws.endpoint, tmp_path / "log") as runtime,
    ):
        for path in events_of(function):
            with subtests.test(path.stem):
                wipe(deployed)
                receiver.answers.clear()
                if first := setup.before(path):
                    runtime.invoke(setup.prepare(first))
                    runtime.new_output()
                answer = runtime.invoke(setup.prepare(path))
                outcome = Outcome(deployed, receiver, answer, runtime.new_output())
                expected = (EXPECTED | _own(function)).get(f"{function}/{path.stem}", _is_consumed)
                assert expected(outcome), (answer, receiver.answers, outcome.log)


def _own(function: str) -> Mapping[str, Expectation]:
    """The expected outcomes of a function that you may replace."""
    module = own_module(function, "tests.expected_events")
    return module.EXPECTED if module else {}


def _is_consumed(outcome: Outcome) -> bool:
    """No message stays on the queue. It is expected of own events for which nothing else is stated."""
    return outcome.failed_items == 0


def test_every_sample_event_has_an_expected_outcome() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in (ROOT / "events").glob("*/*.json")}
    assert files == EXPECTED.keys()


def test_every_sample_event_is_described() -> None:
    described = re.findall(r"^\| `(\w+/\w+)` \|", (ROOT / "events" / "README.md").read_text(), re.MULTILINE)
    assert described == list(EXPECTED)
