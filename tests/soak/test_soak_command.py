"""The command as far as it goes without an embedded AWS: options, the view, the picture, the tables, the job."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.scenarios.runner import command as frame
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.soak import main as command
from dev.scenarios.soak import picture, summary, view
from dev.scenarios.soak.beside import Snapshot
from dev.scenarios.soak.stage import SCRIPT
from tests.soak.diary import records, report

BUSY = Snapshot(
    elapsed=9.0,
    seconds=60.0,
    sent=20,
    queued=7,
    running=2,
    slots={"soak-a": (2, 3, False), "soak-b": (0, 2, True)},
    rounds=3,
    faults=4,
    last="engine killed",
    phase="storm",
)


@pytest.mark.parametrize(
    "wrong",
    [["--minutes", "0"], ["--minutes", "nan"], ["--limit", "0"], ["--limit", "21"], ["--seed", "one"], ["--no"]],
)
def test_a_wrong_option_is_answered_with_the_variables_of_make(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing here
    result = CliRunner().invoke(command.main, wrong)
    assert result.exit_code == 2
    assert "from make: MINUTES=0.1..120 SEED=any whole number LIMIT=1..20" in result.output


def test_it_is_settled_when_nothing_waits_runs_or_holds() -> None:
    settled = replace(BUSY, queued=0, running=0, slots={"soak-a": (0, 3, False)})
    assert settled.settled
    assert not replace(settled, queued=1).settled
    assert not replace(settled, running=1).settled
    assert not replace(settled, slots={"soak-a": (1, 3, False)}).settled


@pytest.mark.parametrize("terminal", [True, False])
def test_the_view_tells_slots_queue_and_faults(terminal: bool) -> None:
    said = io.StringIO()
    with for_console(Console(file=said, force_terminal=terminal, width=130), view.panel, view.plain_line) as shown:
        shown.show(BUSY)
    for word in ("soak-a", "2/3" if not terminal else "2 of 3", "paused", "storm", "engine killed"):
        assert word in said.getvalue()


def test_the_tables_show_every_check_and_every_kind_of_fault() -> None:
    made, said = report(records()), io.StringIO()
    summary.show(Console(file=said, width=130), made)
    for word in ("S1b", "not shown", "woken for nothing", "4 SUCCEEDED, 1 FAILED", "median"):
        assert word in said.getvalue()


@pytest.mark.parametrize("found", [records(), records(sent=[], executions=[], runs=[], changes=[], marks=[])])
def test_the_picture_is_drawn_whatever_there_is(found: object, tmp_path: Path) -> None:
    file = tmp_path / "soak.png"
    picture.draw(report(found), file)  # type: ignore[arg-type]
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("ending", "code"), [("succeed", 0), ("fail", 1)])
def test_the_job_ends_as_it_is_told(ending: str, code: int) -> None:
    arguments = ["--seconds", "0.01", "--ending", ending, "--slotkeeper-execution", "p-1"]
    ended = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == code
