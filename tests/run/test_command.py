"""The command itself, as far as it goes without an embedded AWS."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.scenarios.runner.command import Phases
from dev.scenarios.slots import main as command
from dev.scenarios.slots import summary
from tests.run.handmade import records, report, workflow

TERMINAL = 80  # columns


@pytest.mark.parametrize("wrong", [["--limit", "0"], ["--requests", "2001"], ["--fail", "nan"], ["--limit"], ["--no"]])
def test_a_wrong_option_is_answered_with_the_variables_of_make(wrong: list[str]) -> None:
    result = CliRunner().invoke(command.main, wrong)
    assert result.exit_code == 2
    assert "from make: REQUESTS=1..2000 LIMIT=1..500 FAIL=0..1" in result.output


def test_phases_are_reported_by_key_and_said_in_words() -> None:
    said = io.StringIO()
    phases = Phases(Console(file=said))
    with phases.phase("upload", "upload 3 input files"):
        pass
    assert list(phases.seconds) == ["upload"]
    assert said.getvalue() == "upload 3 input files ...\nupload 3 input files: 0.0 s\n"


def shown(made: dict[str, object]) -> list[str]:
    text = io.StringIO()
    summary.show(Console(file=text, width=TERMINAL), made)
    return text.getvalue().splitlines()


def test_a_long_request_id_is_whole_in_a_narrow_terminal() -> None:
    made = report(1, records([workflow(1, 0.2, 1.2, status="FAILED")]), damaged=(1,))
    made["kept"][0] |= {"request_id": "20120101T000000-0001-2012-01" * 2, "reason": "not a number " * 9}
    cells = [line.split("│")[1].strip() for line in shown(made) if line.count("│") == 4]
    assert made["kept"][0]["request_id"] in "".join(cells)


def test_the_hand_off_figures_stand_on_one_line_of_a_narrow_terminal() -> None:
    made = report(3, records([workflow(1, 0.2, 1.2), workflow(2, 1.3, 2.3), workflow(3, 2.4, 3.4)]))
    made["handoff"] = {"count": 1997, "median": 12.34, "p99": 12.34, "max": 12.34}
    assert any("median 12.34 s, p99 12.34 s, max 12.34 s (1997)" in line for line in shown(made))
