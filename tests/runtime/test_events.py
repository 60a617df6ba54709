"""Every sample event in the real Lambda runtime: aws-lambda-rie and awslambdaric, and no Docker.

A function is started once, as a warm environment is, and called with its events one after the other: one test a
function, since a start costs more than all its calls.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.invoke.main import own_world
from dev.tools.invoke.runtime import Runtime
from dev.tools.invoke.stack import events_of, folders
from tests.runtime.expected import EXPECTED
from tests.runtime.outcomes import Outcome, wipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")


@pytest.mark.parametrize("function", folders())
def test_each_sample_event_does_what_its_name_says(
    aws: EmbeddedAws, tmp_path: Path, subtests: pytest.Subtests, function: str
) -> None:
    with (
        own_world(aws, function) as (deployed, world, told),
        Runtime(deployed.configuration, aws.endpoint, tmp_path / "log") as runtime,
    ):
        for path in events_of(function):
            with subtests.test(path.stem):
                wipe(deployed)
                told.answers.clear()
                if first := world.before(path):
                    runtime.invoke(world.prepare(first))
                    runtime.said()
                answer = runtime.invoke(world.prepare(path))
                outcome = Outcome(deployed, told, answer, runtime.said())
                assert EXPECTED[f"{function}/{path.stem}"](outcome), (answer, told.answers, outcome.log)


def test_every_sample_event_is_expected_to_do_something() -> None:
    files = {f"{function}/{path.stem}" for function in folders() for path in events_of(function)}
    assert files == EXPECTED.keys()


def test_every_sample_event_is_described() -> None:
    described = re.findall(r"^\| `(\w+/\w+)` \|", (ROOT / "events" / "README.md").read_text(), re.MULTILINE)
    assert described == list(EXPECTED)
