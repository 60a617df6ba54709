"""`make run-worker OUTAGE=yes` in its smallest form with failures, retries and poison, on a deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dev.emulator import cli, next_steps
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.worker import worker_mix, worker_records
from dev.scenarios.worker.worker_figures import Parameters
from dev.scenarios.worker.worker_records import Schedule, read_schedules
from dev.scenarios.worker.worker_scenario import Timing, perform
from tests.e2e.schedules import bring_forward
from tests.scenarios.reports import failing, not_shown, run_of

sample = pytest.importorskip("functions.worker.sample", reason="the shipped work is replaced")
RETRY_AFTER = 8  # seconds; longer than the queue's delay in this test
BREAKER = {"failure_threshold": 5, "window_calls": 5, "recovery_seconds": 1}
# The breaker can open or close too late to show more than one probe, and with one caller until late.
PERHAPS_NOT_SHOWN = {"never more than 2 concurrent callers", "one probe at a time, each after its wait"}
MISSING = '{"request_id": "b", "payload": {"input_key": "work/input/nothing", "split_by": "weather"}}'


def test_every_claim_of_the_workers_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_records, "read_schedules", read_sooner_schedules)
    monkeypatch.setitem(worker_mix.POLICY["downstream"], "breaker", BREAKER)
    parameters = Parameters(requests=20, seed=6, scale=0.05, workers=2, retry_after=RETRY_AFTER, outage=True)
    with EmbeddedAws.start(tmp_path, downstream=True) as aws:
        report = perform(aws, parameters, run_of(), scheduler_beyond=7, timing=Timing(10.0, 3.0, 9.0, 0.2))
        next_steps.upload_sample(aws)
        bodies = [sample.body("a"), sample.body("a"), MISSING, "no JSON"]
        done, repeated, missing, invalid = (work(tmp_path, body, monkeypatch) for body in bodies)
    assert failing(report) == {}
    assert not_shown(report).keys() <= PERHAPS_NOT_SHOWN
    assert (report["succeeded"], report["dead_lettered"], report["nowhere"]) == (18, 2, 0)
    assert report["most_callers"] <= 2
    assert sum(report["attempts"]["slow"].values()) == 6
    assert sum(report["attempts"]["poison"].values()) == 2
    assert report["outage"]["calls"] >= BREAKER["failure_threshold"]
    assert {each["breaker"] for each in report["samples"]} >= {"CLOSED", "OPEN"}
    assert list(report["phases"]) == ["deploy", "upload", "run", "collect"]
    assert done.exit_code == repeated.exit_code == 0
    assert "local: a has succeeded after 1 attempt\n" in done.output
    assert re.search(r"local:   rain: work/parts/a/1/\S+, records: 18\n", done.output)
    assert "local: dropped: " in repeated.output
    assert done.output.splitlines()[-5:] == repeated.output.splitlines()[-5:]
    assert missing.exit_code == invalid.exit_code == 1
    assert "local: b is dead-lettered after 1 attempt: Poison\n" in missing.output
    assert missing.output.splitlines()[-1].startswith('make work BODY=\'{"request_id":"b"')
    assert "is dead-lettered without an attempt: InvalidMessage\n" in invalid.output


def read_sooner_schedules(scheduler: Any, group: str, known: Mapping[str, Schedule]) -> list[Schedule]:
    """Let each schedule fire when its retry may begin, not at the next full minute."""
    for listed in scheduler.list_schedules(GroupName=group)["Schedules"]:
        if listed["Name"] not in known:
            bring_forward(scheduler, group, listed["Name"], to=listed["CreationDate"].timestamp() + RETRY_AFTER + 1)
    return read_schedules(scheduler, group, known)


def work(state_dir: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`python -m dev.emulator work` with this engine."""
    monkeypatch.setattr(cli, "STATE_DIR", state_dir)
    return CliRunner().invoke(cli.main, ["work", "--", body])
