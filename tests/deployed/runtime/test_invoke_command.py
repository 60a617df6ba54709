"""`make invoke`: its output, its refusals of unknown names, and what it shows of a function that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.invoke import invoke_command as command
from dev.tools.invoke.function_stack import DeployedFunction, archive, bring_up, events_of

JANITOR = (ROOT / "functions" / "janitor" / "app.py").read_text()
HANDLER = "import os, time\ndef handler(event, context):\n    print('called')\n    "


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


def test_it_deploys_the_function_and_separates_answer_and_log() -> None:
    result = _run("process_registrar", str(ROOT / "events" / "process_registrar" / "update_job.json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) is None
    assert '"Status": "SUCCESS"' in result.stderr
    assert "events/process_registrar/create.json, which is required first" in result.stderr
    assert "Changed the target of the process" in result.stderr


@pytest.fixture(scope="module")
def function(aws: EmbeddedAws) -> DeployedFunction:
    return DeployedFunction(aws, bring_up(aws, "janitor", {}, "faults"), "janitor")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (f"{HANDLER}raise ValueError('no such thing')", ["called", "ValueError: no such thing"]),
        (
            f"{HANDLER}time.sleep(3600)",
            ["called", "the function failed: Sandbox.Timedout: Task timed out after 1.00 s"],
        ),
        (f"{HANDLER}os._exit(3)", ["called", "the function failed: Runtime.HandlerError: Worker process died"]),
        ("import unknown", ["ModuleNotFoundError: No module named 'unknown'"]),
        ("import os\nos.environ['ABSENT']", ["KeyError: 'ABSENT'"]),
        (JANITOR, ["MissingSetting: the function's environment lacks SLOT_TABLE_NAME; "]),
    ],
)
def test_a_fault_of_the_function_is_shown_and_is_the_exit_code(
    function: DeployedFunction, capsys: pytest.CaptureFixture[str], tmp_path: Path, source: str, shown: list[str]
) -> None:
    (tmp_path / "app.py").write_text(source)
    functions = function.aws.client("lambda")
    functions.update_function_code(FunctionName=function.name, ZipFile=archive(tmp_path))
    functions.update_function_configuration(FunctionName=function.name, Timeout=1, Environment={"Variables": {}})
    with pytest.raises(SystemExit) as ended:
        command.call(function, *events_of("janitor"))
    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (1, "")
    assert all(text in output.err for text in shown), output.err
