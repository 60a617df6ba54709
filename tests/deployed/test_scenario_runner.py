"""The runner that all loads share: command line, engine, exit codes, report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from dev.emulator.aws import EngineError
from dev.emulator.environment import ROOT
from dev.scenarios import commands
from dev.scenarios.runner import scenario as runner
from dev.scenarios.runner.checks import check
from dev.scenarios.runner.scenario import Outcome, Scenario, as_text
from slotkeeper_cli.audit.check_result import CheckResult, Result

LOADS = {"slots": "run", "token": "run-chatbot", "worker": "run-worker"}  # with the target of each


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
    "options",
    [
        "slots --limit 0",
        "slots --priorities yes --requests 11",
        "slots --priorities yes --limit 2",
        "slots --doorbell no --target workflow",
        "slots --faults 1 --priorities yes",
        "slots --faults 1 --limit 21",
        "slots --keys 2 --target workflow",
        "token --senders 101",
        "token --messages 5 --invalidations 5",
        "worker --workers 1",
        "worker --outage 5",
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "EmbeddedAws", None)
    answer = CliRunner().invoke(commands.main, options.split())
    assert (answer.exit_code, "Error: " in answer.output) == (2, True)


@pytest.mark.parametrize(("load", "target"), LOADS.items())
def test_the_makefile_has_the_defaults_of_the_command(load: str, target: str) -> None:
    given = dict(re.findall(r'--([a-z-]+)="([^"]*)"', make_command(target)))
    command = commands.main.commands[load]
    defaults = {str(option.name).replace("_", "-"): option.default for option in command.params}
    assert given == {name: f"{each:g}" if isinstance(each, float) else str(each) for name, each in defaults.items()}


@pytest.mark.parametrize(
    ("target", "given", "environment", "option"),
    [
        ("soak", ["MINUTES=2"], {}, 'slots --faults="2" --seed="1" --limit="3"'),
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
    package = "dev.scenarios"
    command = [sys.executable, "-S", "-m", package, "--help"]  # -S: without installed packages
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "is not installed for" in answer.stderr
    assert f"build/venv/bin/python -m {package}\n" in answer.stderr
    assert "Traceback" not in answer.stderr


# --------------------------------------------------------------------------------------------- engine and exit codes


@dataclass(frozen=True)
class Parameters:
    """Of no load."""


HOLDS, FAILS = check("it was seen", True, "twice"), check("it was kept", False, "it was lost")
NOT_SHOWN = check("it was undone", None, "no case")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(*_arguments: Any, **_options: Any) -> Iterator[Mock]:
        yield Mock()

    monkeypatch.setattr(runner, "engine", nothing)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("judged", "code"), [([HOLDS, NOT_SHOWN], 0), ([HOLDS, FAILS, NOT_SHOWN], 1)])
def test_only_a_check_that_fails_fails_the_run(
    judged: list[CheckResult], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(Parameters(), 0.0, judged, {"sent": 1}, {runner.PICTURE: "<svg/>"})
    (tmp_path / runner.PAGE).write_text("of an earlier run")
    with pytest.raises(SystemExit) as ended:
        runner.carry_out(Scenario(tmp_path), lambda *_: outcome)
    assert ended.value.code == code
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] == (code == 0)
    assert (tmp_path / runner.PICTURE).read_text() == "<svg/>"
    assert not (tmp_path / runner.PAGE).exists()
    output = capsys.readouterr().out
    assert f"{runner.PICTURE}: slots over time" in output
    assert ("FAILS it was kept: it was lost" in output) == (code == 1)
    verdicts = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert verdicts[1:] == ["FAILS" if each.result is Result.FAILS else str(each.result) for each in judged]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (EngineError("no engine today"), 1)])
def test_an_interrupt_or_an_error_ends_the_run_without_a_report(
    error: BaseException, code: int, tmp_path: Path
) -> None:
    (tmp_path / "report.json").touch()
    with pytest.raises(SystemExit) as ended:
        runner.carry_out(Scenario(tmp_path), Mock(side_effect=error))
    assert ended.value.code == code
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (None, "none"),
        (2.5, "2.50 s"),
        ({"count": 0, "p50": None}, "none"),
        ({"count": 2, "p50": 0.25, "max": 1.0}, "p50 0.25 s, max 1.00 s (2)"),
        ({"FAILED": 1, "SUCCEEDED": 2}, "1 FAILED, 2 SUCCEEDED"),
        ([f"r{number}" for number in range(11)], "\n".join([*(f"r{number}" for number in range(10)), "and 1 more"])),
    ],
)
def test_each_kind_of_figure_has_a_text(figure: Any, text: str) -> None:
    assert as_text(figure) == text
