"""A stack has the flows that its parameters choose: the slots alone, or with one of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dev.emulator.aws import EmbeddedAws
from slotkeeper_cli.app import app
from tests.e2e.deployed_stack import JOB, DeployedStack, update
from tests.support.template import parsed_template

TEMPLATE = parsed_template()
SLOTS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
}
CHATBOT = {"ChatApiUrl": "http://127.0.0.1:9"}
WORKER = {"DeployWorker": "true"}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """An engine for this module, since other tests need a stack with all flows."""
    with EmbeddedAws.start(tmp_path_factory.mktemp("flows")) as started:
        yield started


@pytest.fixture
def slotkeeper(aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command on the stack; returns its output or its error."""
    folder = tmp_path / "build" / "local"
    folder.mkdir(parents=True)
    (folder / "outputs.json").write_text((aws.state_dir / "outputs.json").read_text())
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        ended = CliRunner(mix_stderr=False).invoke(app, [*arguments, "--local", "--json"])
        return ended.stdout or f"{type(ended.exception).__name__}: {ended.exception}"

    return run


def _outputs(*conditions: str) -> set[str]:
    return {n for n, output in TEMPLATE["Outputs"].items() if output.get("Condition") in (None, *conditions)}


def _logical_ids(aws: EmbeddedAws) -> set[str]:
    pages = aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName="slotkeeper")
    each = [one for page in pages for one in page["StackResourceSummaries"]]
    return {one["LogicalResourceId"] for one in each if one["ResourceStatus"] != "DELETE_COMPLETE"}


def _conditional(condition: str) -> set[str]:
    return {name for name, resource in TEMPLATE["Resources"].items() if resource.get("Condition") == condition}


def test_the_slots_alone_admit_a_request(aws: EmbeddedAws) -> None:
    assert aws.deploy(SLOTS).keys() == _outputs()
    assert not (_conditional("HasChatbot") | _conditional("HasWorker")) & _logical_ids(aws)
    stack = DeployedStack(aws)
    process = stack.process()
    name = stack.send(process, "r")
    stack.wait_until_running(name)
    assert stack.holders(process) == {name}
    stack.end(process, "r")
    assert stack.wait_for_status(name, "SUCCEEDED")
    stack.wait_until_free(process)


def test_the_command_reports_a_flow_that_is_not_deployed(slotkeeper: Callable[..., Any]) -> None:
    looked = json.loads(slotkeeper("doctor"))
    assert looked["not_deployed"] == ["chatbot", "worker"]
    levels = {one["check"]: one["level"] for one in looked["checks"]}
    absent = {"worker-concurrency", "retries", "retry-policy", "breakers"}
    assert {name for name, level in levels.items() if level == "absent"} == absent
    # The test's job is not one of the template.
    assert {name for name, level in levels.items() if level == "problem"} <= {"targets"}
    assert not [f for one in looked["checks"] for f in one["findings"] if "not checked" in f["saw"]]
    seen = json.loads(slotkeeper("status"))
    assert seen["not_deployed"] == ["chatbot", "worker"]
    assert seen["queues"].keys() == {"RequestQueue", "RequestDeadLetterQueue", "FailedRequestQueue"}


@pytest.mark.parametrize(
    ("flow", "condition", "command"),
    [(CHATBOT, "HasChatbot", ("retry", "list")), (WORKER, "HasWorker", ("token", "show"))],
    ids=["chatbot", "worker"],
)
def test_either_flow_is_deployed_without_the_other(
    aws: EmbeddedAws, slotkeeper: Callable[..., Any], flow: dict[str, str], condition: str, command: tuple[str, ...]
) -> None:
    assert update(aws, **({"ChatApiUrl": "", "DeployWorker": "false"} | flow)).keys() == _outputs(condition)
    (other,) = {"HasChatbot", "HasWorker"} - {condition}
    there = _logical_ids(aws)
    assert _conditional(condition) <= there
    assert not _conditional(other) & there
    assert "NotFound: the " in (output := slotkeeper(*command))
    assert "is not deployed in this stack: deploy the stack with" in output
