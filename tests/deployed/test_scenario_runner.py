"""The parts that all scenarios share: command line, engine, live view, exit codes, report keys, tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from dev.scenarios.runner import checks
from dev.scenarios.runner import scenario as frame
from dev.scenarios.runner.checks import check
from dev.scenarios.runner.scenario import Outcome, Scenario
from dev.scenarios.slots import slot_scenario
from dev.scenarios.soak import soak_scenario
from dev.scenarios.token import token_scenario
from dev.scenarios.worker import worker_scenario
from slotkeeper_cli.audit.check_result import CheckResult, Result

SCENARIOS = [slot_scenario, token_scenario, worker_scenario, soak_scenario]
TARGETS = ("run", "run-chatbot", "run-worker", "soak")


def make_command(target: str, *given: str, **environment: str) -> str:
    """The command that `make` would run."""
    answer = subprocess.run(
        ["make", "--dry-run", target, *given],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return " ".join(answer.stdout.replace("\\\n", "").split())


# ------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("scenario", "variables", "wrong"),
    [
        (
            slot_scenario,
            "REQUESTS=1..2000 LIMIT=1..500 FAIL=0..1 PRIORITIES=no|yes TARGET=glue|workflow DOORBELL=yes|no",
            [
                "--limit 0",
                "--fail nan",
                "--priorities yes --requests 11",
                "--priorities yes --limit 2",
                "--doorbell no --target workflow",
            ],
        ),
        (
            token_scenario,
            "MESSAGES=1..2000 SENDERS=1..100 INVALIDATIONS=0..50 AUTH_LATENCY=0..3",
            ["--senders 101", "--auth-latency nan", "--messages 5 --invalidations 5"],
        ),
        (
            worker_scenario,
            "REQUESTS=1..1000 SEED=any whole number SCALE=0.02..1 WORKERS=2..10 OUTAGE=no|yes",
            ["--scale nan", "--workers 1", "--outage 5"],
        ),
        (
            soak_scenario,
            "MINUTES=0.1..120 SEED=any whole number LIMIT=1..20",
            ["--minutes nan", "--seed one", "--no"],
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_variables_of_make(
    scenario: ModuleType, variables: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing
    for options in wrong:
        answer = CliRunner().invoke(scenario.main, options.split())
        assert answer.exit_code == 2
        assert f"from make: {variables}" in answer.output


@pytest.mark.parametrize(("target", "scenario"), list(zip(TARGETS, SCENARIOS, strict=True)))
def test_the_makefile_has_the_defaults_of_the_command(target: str, scenario: ModuleType) -> None:
    defaults = {option.name: option.default for option in scenario.main.params}
    shown = (f"{each:g}" if isinstance(each, float) else str(each) for each in defaults.values())
    options = (f'--{name.replace("_", "-")}="{value}"' for name, value in zip(defaults, shown, strict=True))
    assert re.search(r"-m dev\.scenarios\.\w+ (.*)", make_command(target))[1] == " ".join(options)  # type: ignore[index]


@pytest.mark.parametrize(
    ("target", "given", "environment", "option"),
    [
        ("run", ["PRIORITIES=yes"], {}, '--limit="4" --fail="0" --priorities="yes"'),
        ("run", ["PRIORITIES=yes"], {"LIMIT": "9"}, '--limit="9"'),
        ("run-worker", ["REQUESTS=40"], {}, '--requests="40"'),
    ],
)
def test_a_default_of_one_target_gives_way_to_a_given_value(
    target: str, given: list[str], environment: dict[str, str], option: str
) -> None:
    assert option in make_command(target, *given, **environment)


def test_a_python_without_the_packages_names_the_right_one() -> None:
    package = "dev.scenarios.slots"
    command = [sys.executable, "-S", "-m", package, "--help"]  # -S: without installed packages
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "is not installed for" in answer.stderr
    assert f"build/venv/bin/python -m {package}\n" in answer.stderr
    assert "Traceback" not in answer.stderr


# --------------------------------------------------------------------------------------------- engine and exit codes


@pytest.mark.parametrize("module", SCENARIOS)
def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_state_dir: Path, **_options: Any) -> None:
        raise EngineError("no engine today")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmbeddedAws, "start", refuse)
    folder = module.SCENARIO.folder
    folder.mkdir(parents=True)
    for name in ("report.json", frame.PAGE):
        (folder / name).touch()
    result = CliRunner().invoke(module.main, [])
    assert result.exit_code == 1
    assert "no engine today" in result.output
    assert [path.name for path in folder.iterdir()] == ["lock"]


HOLDS, FAILS = check("it was seen", True, "twice"), check("it was kept", False, "it was lost")
NOT_SHOWN = check("it was undone", None, "no case")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(*_arguments: Any, **_options: Any) -> Iterator[Mock]:
        yield Mock()

    monkeypatch.setattr(frame, "engine", nothing)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("judged", "code"), [([HOLDS, NOT_SHOWN], 0), ([HOLDS, FAILS, NOT_SHOWN], 1)])
def test_only_a_check_that_fails_fails_the_run(
    judged: list[CheckResult], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(checks.as_json(judged), [], {frame.PICTURE: "<svg/>"})
    (tmp_path / frame.PAGE).write_text("of an earlier run")
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(Scenario(tmp_path), {}, lambda *_: outcome)
    assert ended.value.code == code
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] == (code == 0)
    assert (tmp_path / frame.PICTURE).read_text() == "<svg/>"
    assert not (tmp_path / frame.PAGE).exists()
    output = capsys.readouterr().out
    assert f"{frame.PICTURE}: slots over time" in output
    assert ("FAILS it was kept: it was lost" in output) == (code == 1)
    verdicts = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert verdicts == ["FAILS" if each.result is Result.FAILS else str(each.result) for each in judged]


@pytest.mark.usefixtures("no_engine")
def test_an_interrupt_ends_the_engine_and_the_run_with_130(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(Scenario(tmp_path), {}, Mock(side_effect=KeyboardInterrupt))
    assert ended.value.code == 130
