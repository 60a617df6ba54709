"""`sam deploy`, and --guided with Enter as the answer to each question, in an account whose concurrency limit is 10.

Then the stack is updated to the flows that its parameters choose: the slots alone, or with one of the others. The tests
share the stack, in this order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dev.emulator.aws import EmbeddedAws, silent
from dev.emulator.deployment import SAM, STACK_NAME, built
from dev.emulator.environment import ACCESS_KEY, REGION, ROOT, child_environment
from slotkeeper_cli.app import app
from tests.e2e.deployed_stack import JOB, DeployedStack, update
from tests.support.template import parsed_template

NEW_ACCOUNT = {"LAMBDA_ACCOUNT_CONCURRENCY": "10"}
QUESTIONS = 200  # more answers than questions
TEMPLATE = parsed_template()
SLOTS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
}
CHATBOT = {"ChatApiUrl": "http://127.0.0.1:9"}
WORKER = {"DeployWorker": "true"}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("account"), environment=NEW_ACCOUNT) as started:
        yield started


def _sam(aws: EmbeddedAws, *arguments: str, answers: str = "") -> str:
    """Run SAM CLI in the account with the repository's own samconfig.toml. Raises if it fails, as without an answer."""
    config = ["--config-file", str(aws.state_dir / "config.toml")]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SAM, *arguments, *config],
        cwd=aws.state_dir,
        env=child_environment(aws.endpoint, {"SAM_CLI_POLL_DELAY": "0.2"}),
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return ran.stdout


def test_a_deployment_asks_nothing_and_enter_at_each_question_of_guided_changes_nothing(
    aws: EmbeddedAws,
) -> None:
    folder = aws.state_dir
    shutil.copy(ROOT / "samconfig.toml", folder / "config.toml")
    template = ["--template-file", str(folder / "sam" / "template.yaml")]
    with built(ROOT / "template.yaml", folder, silent) as shared:  # its cache saves the download
        shutil.copy(shared.with_name("build.toml"), folder)
        cache = ["--cache-dir", f"{shared}-cache"]
        source = ["--template-file", str(ROOT / "template.yaml")]
        _sam(aws, "build", *source, "--build-dir", str(folder / "sam"), *cache)

    _sam(aws, "deploy", *template)
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    limit = aws.client("lambda").get_account_settings()["AccountLimit"]
    assert (limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"]) == (10, 10)

    output = _sam(aws, "deploy", "--guided", *template, answers="\n" * QUESTIONS)
    assert "has no authentication" not in output
    assert "Deploy this changeset?" not in output
    assert "No changes to deploy" in output

    # A later deployment reads the saved answers.
    assert "No changes to deploy" in _sam(aws, "deploy", *template)


@pytest.fixture
def slotkeeper(aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command on the stack; returns its output or its error."""
    folder = tmp_path / "build" / "local"
    folder.mkdir(parents=True)
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": ACCESS_KEY}
    (folder / "outputs.json").write_text(json.dumps({"endpoint": aws.endpoint, "region": REGION} | keys))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        ended = CliRunner(mix_stderr=False).invoke(app, [*arguments, "--local", "--json"])
        return ended.stdout or f"{type(ended.exception).__name__}: {ended.exception}"

    return run


def _outputs(*conditions: str) -> set[str]:
    return {n for n, output in TEMPLATE["Outputs"].items() if output.get("Condition") in (None, *conditions)}


def _logical_ids(aws: EmbeddedAws) -> set[str]:
    pages = aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK_NAME)
    each = [one for page in pages for one in page["StackResourceSummaries"]]
    return {one["LogicalResourceId"] for one in each if one["ResourceStatus"] != "DELETE_COMPLETE"}


def _conditional(condition: str) -> set[str]:
    return {name for name, resource in TEMPLATE["Resources"].items() if resource.get("Condition") == condition}


def test_the_slots_alone_admit_a_request(aws: EmbeddedAws) -> None:
    aws.outputs = update(aws, **SLOTS)
    assert aws.outputs.keys() == _outputs()
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
