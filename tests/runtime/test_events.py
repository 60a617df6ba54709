"""Every sample event in the real Lambda runtime: aws-lambda-rie and awslambdaric, and no Docker.

A function is started once, as a warm environment is, and called with its events one after the other: one test a
function, since a start costs more than all its calls.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.function_folders import own_module
from dev.tools.invoke.event_setup import EventSetup
from dev.tools.invoke.function_stack import DeployedFunction, events_of, folders
from dev.tools.invoke.invoke_command import own_stack
from dev.tools.invoke.lambda_runtime import Runtime
from dev.tools.invoke.response_receiver import ResponseReceiver
from tests.runtime.expected import EXPECTED
from tests.runtime.runtime_outcomes import TABLES, Expectation, Outcome, wipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")


@pytest.mark.parametrize("function", folders())
def test_each_sample_event_has_its_outcome(
    aws: EmbeddedAws, tmp_path: Path, subtests: pytest.Subtests, function: str
) -> None:
    with (
        own_stack(aws, function) as (deployed, setup, receiver),
        Runtime(deployed.configuration, aws.endpoint, tmp_path / "log") as runtime,
    ):
        with subtests.test("removed again"):
            assert _leaves_nothing(deployed, function, receiver)
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


def _leaves_nothing(deployed: DeployedFunction, function: str, receiver: ResponseReceiver) -> bool:
    """Whether a setup removes all that it creates from a stack that has other users, also after Ctrl-C."""
    before = _contents(deployed)
    with suppress(KeyboardInterrupt), ExitStack() as undo:
        setup = EventSetup(deployed, function, receiver, undo=undo)
        for path in events_of(function):
            setup.prepare(path)
        raise KeyboardInterrupt
    return _contents(deployed) == before


def _contents(deployed: DeployedFunction) -> dict[str, object]:
    """Items, Glue jobs and objects, which setups create. Of a released lock only the key is left."""
    client, names = deployed.aws.client, deployed.names
    kept: dict[str, object] = {"jobs": [job["Name"] for job in client("glue").get_jobs()["Jobs"]]}
    for table in TABLES.keys() & names.keys():
        items = client("dynamodb").scan(TableName=names[table])["Items"]
        kept[table] = [item for item in items if item.keys() - {*TABLES[table]}]
    if "DataBucket" in names:
        kept["objects"] = client("s3").list_objects_v2(Bucket=names["DataBucket"]).get("Contents", [])
    return kept


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
