"""The command as far as it goes without an embedded AWS, and what it says meanwhile."""

from __future__ import annotations

import io
import re
import subprocess
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.emulator.environment import ROOT
from dev.scenarios.runner import command as frame
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.worker import main as command
from dev.scenarios.worker import summary, view
from dev.scenarios.worker.report import Parameters
from dev.scenarios.worker.watching import Snapshot
from tests.worker_run.jottings import LETTER, PLAIN, records, report

BUSY = Snapshot(
    elapsed=9.0,
    requests=100,
    limit=3,
    callers=2,
    calls=31,
    waiting=37,
    in_flight=3,
    delayed=5,
    scheduled=1,
    succeeded=20,
    dead_lettered=4,
)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--requests", "0"],
        ["--requests", "1001"],
        ["--seed", "one"],
        ["--scale", "nan"],
        ["--scale", "0.01"],
        ["--scale", "1.5"],
        ["--workers", "1"],
        ["--workers", "11"],
        ["--workers"],
        ["--no"],
    ],
)
def test_a_wrong_option_is_answered_with_the_variables_of_make(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "EmbeddedAws", None)  # an option that slips through starts nothing here
    result = CliRunner().invoke(command.main, wrong)
    assert result.exit_code == 2
    assert "from make: REQUESTS=1..1000 SEED=any whole number SCALE=0.02..1 WORKERS=2..10" in result.output


def test_one_worker_is_refused_with_the_reason_and_the_way_out() -> None:
    said = " ".join(CliRunner().invoke(command.main, ["--workers", "1"]).output.split())
    assert "(MaximumConcurrency, 2 to 1000)" in said
    assert "with one slot: make run LIMIT=1." in said


def options(*given: str, **environment: str) -> str:
    """The command line that `make run-worker` would use."""
    clean = {"PATH": "/usr/bin:/bin"}
    answer = subprocess.run(
        ["make", "--dry-run", "run-worker", *given],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()[-1].partition("-m dev.scenarios.worker ")[2]


def test_the_makefile_s_defaults_are_the_command_s() -> None:
    defaults = {option.name: option.default for option in command.main.params}
    assert options() == " ".join(f'--{name}="{value}"' for name, value in defaults.items())


def test_the_requests_of_make_run_are_not_those_of_make_run_worker_unless_somebody_says_so() -> None:
    assert options("REQUESTS=40").startswith('--requests="40"')
    assert options(REQUESTS="41").startswith('--requests="41"')
    assert re.search(r"^REQUESTS \?= 40$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_a_small_run_waits_for_its_schedule_before_it_gives_up() -> None:
    parameters = Parameters(1, 1, 0.15, 3, command.RETRY_AFTER)
    assert command.stalled_after(parameters) >= parameters.retry_after + 60
    assert parameters.retry_after > command.SCHEDULER_BEYOND


@pytest.mark.parametrize(
    "left", [{}, {"waiting": 1}, {"in_flight": 1}, {"delayed": 1}, {"scheduled": 1}, {"callers": 1}]
)
def test_it_is_over_when_all_have_ended_and_nothing_is_left(left: dict[str, int]) -> None:
    calm = {"callers": 0, "waiting": 0, "in_flight": 0, "delayed": 0, "scheduled": 0}
    assert replace(BUSY, succeeded=90, dead_lettered=10, **calm | left).over == (not left)
    assert not replace(BUSY, succeeded=90, dead_lettered=9, **calm).over


def test_without_a_terminal_a_line_appears_only_when_something_has_changed() -> None:
    text = io.StringIO()
    with for_console(Console(file=text, width=40), view.panel, view.plain_line) as shown:
        for snapshot in (BUSY, replace(BUSY, elapsed=10.0), replace(BUSY, elapsed=11.0, callers=3)):
            shown.show(snapshot)
    assert text.getvalue().splitlines() == [
        "   9.0 s  callers 2/3  waiting 37  in flight 3  delayed 5  scheduled 1  succeeded 20/100  dead-lettered 4",
        "  11.0 s  callers 3/3  waiting 37  in flight 3  delayed 5  scheduled 1  succeeded 20/100  dead-lettered 4",
    ]


def drawn(thing: object) -> str:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(thing)
    return console.export_text()


def test_the_panel_shows_how_far_it_has_come() -> None:
    text = drawn(view.panel(BUSY))
    assert "2 of 3  ■■□" in text
    assert "24 of 100 in 9.0 s" in text
    assert re.search(r"waiting 37 +in flight 3 +delayed 5 +scheduled 1", text)
    assert re.search(r"succeeded 20 +dead-lettered 4 +calls 31", text)


def test_who_waits_in_vain_is_told_what_stands_where() -> None:
    assert BUSY.said() == (
        "20 of 100 succeeded, 4 dead-lettered, 37 on WorkQueue, 3 in flight, 5 delayed, 1 with Scheduler, "
        "2 calls going on"
    )


def shown(made: dict[str, object]) -> str:
    text = io.StringIO()
    summary.show(Console(file=text, width=130), made)
    return text.getvalue()


def test_the_summary_says_who_ended_where_and_after_how_many_attempts() -> None:
    text = shown(report(records()))
    assert "3 of 5" in text
    assert "2 (1 Poison, 1 InvalidMessage)" in text
    assert "1 in 1, 1 in 2" in text
    assert "answered: 3; 404, no such input: 1; 503 SlowDown: 1; too slow, given up: 1" in text
    assert "a/1 at 50 s" in text
    assert "holds" in text
    assert "Ended elsewhere" not in text


def test_whoever_ended_elsewhere_is_listed_with_its_dead_letter() -> None:
    found = records()
    dead = [*found.dead, replace(LETTER, idempotency_key=PLAIN, code="TooOld", reason="attempt 9 would begin late")]
    text = shown(report(records(dead=dead, manifests=[found.manifests[0], found.manifests[2]])))
    assert "TooOld: attempt 9 would begin late" in text
    assert "FAILS" in text
