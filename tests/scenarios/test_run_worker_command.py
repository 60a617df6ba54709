"""`make run-worker`: its command line, defaults, report and chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dev.scenarios.worker import worker_figures, worker_scenario
from dev.scenarios.worker.worker_records import Sample
from tests.scenarios import outage_run, worker_run
from tests.scenarios import scenario_checks as checks
from tests.scenarios.scenario_checks import make_options

VARIABLES = "REQUESTS=1..1000 SEED=any whole number SCALE=0.02..1 WORKERS=2..10 OUTAGE=no|yes"
WRONG = [
    "--requests 0",
    "--seed one",
    "--scale nan",
    "--scale 0.01",
    "--scale 1.5",
    "--workers 1",
    "--workers 11",
    "--outage 5",
]
RECORDS = worker_run.records()
OPEN_CALL = worker_run.changed(RECORDS.calls, 1, ended=None, answer=None)
ALL_LOST = worker_run.records(calls=OPEN_CALL, rows=[], dead=[], manifests=[], parts={})
STATES = ("CLOSED", "OPEN", "HALF_OPEN", "OPEN", "CLOSED")
OUTAGE = worker_run.records(
    outage=outage_run.record(),
    samples=[Sample(outage_run.ORIGIN + 9 * number, state, 1, 4) for number, state in enumerate(STATES)],
)
OUTAGE_TEXTS = (
    "from 10.0 to 30.0 s: 7 calls, 1 attempt used up",
    "first call after 3.3 s, first success after 4.5 s, last request after 21.7 s",
)
TEXTS = ("3 of 5", "2 (1 Poison, 1 InvalidMessage)", "1 in 1, 1 in 2", "too slow, given up: 1", "a/1 at 50 s")


def test_a_wrong_option_is_refused_with_the_variables_of_make(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.options_are_refused(worker_scenario, VARIABLES, WRONG, monkeypatch)


def test_the_target_has_the_defaults_of_the_command() -> None:
    assert make_options("run-worker") == checks.defaults(worker_scenario)


def test_the_requests_of_make_run_are_not_those_of_make_run_worker_unless_given() -> None:
    assert make_options("run-worker", "REQUESTS=40").startswith('--requests="40"')
    assert make_options("run-worker", REQUESTS="41").startswith('--requests="41"')


def test_one_worker_is_refused_with_the_reason_and_the_alternative() -> None:
    text = " ".join(CliRunner().invoke(worker_scenario.main, ["--workers", "1"]).output.split())
    assert "(MaximumConcurrency, 2 to 1000)" in text
    assert "with one slot: make run LIMIT=1." in text


def test_a_python_without_the_packages_names_the_right_one() -> None:
    checks.missing_packages_are_named("dev.scenarios.worker")


def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.an_earlier_report_is_removed(worker_scenario, tmp_path, monkeypatch)


def test_a_small_run_waits_for_its_schedule_before_it_is_stalled() -> None:
    parameters = worker_figures.Parameters(1, 1, 0.15, 3, worker_scenario.RETRY_AFTER)
    assert worker_scenario.stalled_after(parameters) >= parameters.retry_after + 60
    assert parameters.retry_after > worker_scenario.SCHEDULER_BEYOND


@pytest.mark.parametrize(
    ("report", "texts"),
    [
        (worker_run.report(RECORDS), TEXTS),
        (worker_run.report(ALL_LOST), ("Unexpected ends", "nowhere")),
        (worker_run.report(OUTAGE), OUTAGE_TEXTS),
    ],
    ids=["small", "everything lost", "outage"],
)
def test_any_report_is_written_shown_and_drawn(report: dict[str, Any], texts: tuple[str, ...], tmp_path: Path) -> None:
    checks.a_report_is_written_shown_and_drawn(worker_scenario, worker_figures, report, texts, tmp_path)
