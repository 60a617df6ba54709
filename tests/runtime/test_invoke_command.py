"""`make invoke`: its output, the stack that it uses, and its refusals of unknown names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.invoke import invoke_command as command
from dev.tools.invoke.function_stack import DeployedFunction, bring_up

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the Lambda runtime's emulator is a program for Linux")


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not use a stack that the developer has running."""
    monkeypatch.setattr(command, "LOCAL_STACK", tmp_path / "nothing")


def _run(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(command.main, arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["startr", "happy"], "there is no function 'startr'. Did you mean 'starter'? There are chatbot, "),
        (["starter", "hapy"], "starter has no event 'hapy', nor is it a file. Did you mean 'happy'? There are "),
        (["starter", "zzz"], "nor is it a file. There are batch, doorbell, early, full, happy, "),
        (["starter", str(ROOT / "README.md")], "README.md is not JSON"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(arguments: list[str], message: str) -> None:
    result = _run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@on_linux
def test_it_works_without_a_stack_and_separates_answer_and_log() -> None:
    result = _run("process_registrar", "update_job")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) is None
    assert '"Status": "SUCCESS"' in result.stderr
    assert "events/process_registrar/create.json, which is required first" in result.stderr
    assert "Changed the target of the process" in result.stderr


@on_linux
def test_it_uses_a_running_local_stack_and_accepts_a_file(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LOCAL_STACK", aws.state_dir)
    monkeypatch.setattr(command, "STACK_NAME", bring_up(aws, "starter", {"ProcessName": "local"}, "as-local-up"))
    event = tmp_path / "mine.json"
    event.write_text("{}")
    result = _run("starter", str(event))
    assert f"on the stack of make local-up, at {aws.endpoint}" in result.stderr
    # Not an event of SQS: the function fails, which is the exit code.
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the function failed: KeyError: 'Records'" in result.stderr
    table = DeployedFunction(aws, command.STACK_NAME, "starter").names["SlotTable"]
    assert aws.client("dynamodb").scan(TableName=table)["Items"] == []  # what the event needed is removed
