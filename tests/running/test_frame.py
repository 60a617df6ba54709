"""What the run commands have in common."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from dev.scenarios.runner import checking
from dev.scenarios.runner import command as frame
from dev.scenarios.runner.checking import Check, counted
from dev.scenarios.slots import main as run
from dev.scenarios.token import main as chat_run
from dev.scenarios.worker import main as worker_run


@pytest.mark.parametrize("command", [run, chat_run, worker_run])
def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_state_dir: Path, **_options: bool) -> None:
        raise EngineError("no engine today")

    monkeypatch.setattr(command, "RUN_DIR", tmp_path)
    monkeypatch.setattr(EmbeddedAws, "start", refuse)
    for name in command.WRITTEN:
        (tmp_path / name).touch()
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 1
    assert "no engine today" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


HOLDS, FAILS = Check("it was seen", True, "twice"), Check("it was kept", False, "it was not")
NOT_SHOWN = Check("it was undone", None, "nobody did it")


@contextmanager
def no_engine(*_arguments: Any, **_options: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("checks", "code"), [([HOLDS], 0), ([HOLDS, NOT_SHOWN], 0), ([NOT_SHOWN], 0), ([HOLDS, FAILS, NOT_SHOWN], 1)]
)
def test_a_check_that_cannot_tell_fails_no_run(
    checks: list[Check], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "engine", no_engine)
    with pytest.raises(SystemExit) as ended:
        frame.carry_out(tmp_path, [], lambda *_: {"checks": [asdict(check) for check in checks]})
    assert ended.value.code == code
    assert checking.none_fails(checks) == (code == 0)


def test_a_check_that_cannot_tell_is_not_said_to_hold() -> None:
    text = io.StringIO()
    Console(file=text).print(checking.table({"checks": [asdict(each) for each in (HOLDS, FAILS, NOT_SHOWN)]}))
    lines = [line.strip("│ ").split("│")[0].strip() for line in text.getvalue().splitlines()[2:5]]
    assert lines == ["holds", "FAILS", "not shown"]


def test_one_is_no_plural() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


@pytest.mark.parametrize(
    "package",
    ["dev.emulator", "dev.scenarios.slots", "dev.scenarios.token", "dev.scenarios.worker", "dev.emulator.chat_service"],
)
def test_a_python_without_the_packages_says_what_to_use_instead(package: str) -> None:
    command = [sys.executable, "-S", "-m", package, "--help"]  # -S: without what is installed
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "is not installed for" in answer.stderr
    assert f"build/venv/bin/python -m {package}\n" in answer.stderr
    assert "Traceback" not in answer.stderr
