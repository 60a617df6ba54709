"""Every sample event, in the embedded AWS's Lambda.

A function is deployed once, and called with its events one after the other: one test a function, since a deployment
costs more than all its calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.function_folders import code_folders, own_module
from dev.tools.invoke.event_setup import EventSetup
from dev.tools.invoke.function_stack import events_of
from dev.tools.invoke.invoke_command import own_stack
from tests.deployed.runtime.expected_outcomes import EXPECTED
from tests.deployed.runtime.runtime_outcomes import Expectation, Outcome, wipe


@pytest.mark.parametrize("function", code_folders())
def test_each_sample_event_has_its_outcome(aws: EmbeddedAws, subtests: pytest.Subtests, function: str) -> None:
    with own_stack(aws, function) as deployed:
        setup = EventSetup(deployed)
        for path in events_of(function):
            with subtests.test(path.stem):
                wipe(deployed)
                if first := setup.before(path):
                    deployed.invoke(setup.prepare(first))
                    deployed.new_log()
                answer = deployed.invoke(setup.prepare(path))
                outcome = Outcome(deployed, answer, deployed.new_log())
                expected = {**EXPECTED, **_own(function)}.get(f"{function}/{path.stem}", _is_consumed)
                assert expected(outcome), (answer, outcome.response, outcome.log)


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
