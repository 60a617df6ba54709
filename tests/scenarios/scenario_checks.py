"""Checks that every scenario's tests make: its command line, its target in make, and its report."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from dev.scenarios.runner import scenario as frame


def options_are_refused(
    scenario: ModuleType, variables: str, wrong: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing
    for options in wrong:
        answer = CliRunner().invoke(scenario.main, options.split())
        assert answer.exit_code == 2
        assert f"from make: {variables}" in answer.output


def defaults(scenario: ModuleType) -> str:
    """The options of the command with their default values."""
    return " ".join(f'--{str(o.name).replace("_", "-")}="{_shown(o.default)}"' for o in scenario.main.params)


def _shown(default: Any) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)


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
    return answer.stdout.replace("\\\n", "")


def make_options(target: str, *given: str, **environment: str) -> str:
    """The options with which `make` would run the scenario."""
    command = make_command(target, *given, **environment)
    return " ".join(re.search(r"-m dev\.scenarios\.\w+ (.*)", command)[1].split())  # type: ignore[index]


def missing_packages_are_named(package: str) -> None:
    command = [sys.executable, "-S", "-m", package, "--help"]  # -S: without installed packages
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "is not installed for" in answer.stderr
    assert f"build/venv/bin/python -m {package}\n" in answer.stderr
    assert "Traceback" not in answer.stderr


def an_earlier_report_is_removed(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_state_dir: Path, **_options: Any) -> None:
        raise EngineError("no engine today")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmbeddedAws, "start", refuse)
    folder = module.SCENARIO.folder
    folder.mkdir(parents=True)
    for name in ("report.json", module.SCENARIO.chart):
        (folder / name).touch()
    result = CliRunner().invoke(module.main, [])
    assert result.exit_code == 1
    assert "no engine today" in result.output
    assert [path.name for path in folder.iterdir()] == ["lock"]


def a_report_is_written_shown_and_drawn(
    module: ModuleType, figures: ModuleType, report: dict[str, Any], texts: Sequence[str], tmp_path: Path
) -> None:
    output = io.StringIO()
    scenario = replace(module.SCENARIO, folder=tmp_path)
    frame.write(scenario, report, Console(file=output, width=220))
    read = json.loads((tmp_path / "report.json").read_text())
    scenario.draw(read, tmp_path / "again.png")  # from the report alone
    assert (tmp_path / "again.png").read_bytes().startswith(b"\x89PNG")
    for text in (*texts, *(check["name"] for check in report["checks"])):
        assert text in output.getvalue()
    explained = set(re.findall(r"`(\w+)`", f"{frame.__doc__}{figures.__doc__}"))
    assert set(report) <= explained
