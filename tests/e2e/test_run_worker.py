"""The worker's run on a real deployment, as small as it can be and still fail, retry and be poisoned."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from local.aws import EmbeddedAws
from local.running.command import Phases
from local.worker_run.main import perform
from local.worker_run.report import Parameters


def test_the_run_holds_what_it_has_to_show(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    # Eight seconds are too long for the queue here: the schedule's minute is nearly all there is to wait for.
    parameters = Parameters(requests=20, seed=1, scale=0.05, workers=2, retry_after=8)
    with EmbeddedAws.start(tmp_path, downstream=True) as aws:
        report = perform(aws, parameters, console, Phases(console), scheduler_beyond=7)
    assert [check for check in report["checks"] if not check["ok"]] == []
    assert (report["succeeded"], report["dead_lettered"], report["nowhere"]) == (18, 2, 0)
    assert report["most_callers"] == 2
    assert sum(report["attempts"]["slow"].values()) == 6
    assert report["attempts"]["poison"] == {"1": 2}
    assert len(report["schedules"]) == 1
    assert list(report["phases"]) == ["deploy", "upload", "send", "run", "collect"]
