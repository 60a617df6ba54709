"""Reports of runs and soaks, made from the histories of the audit's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dev.judge.slot_item import Item
from dev.scenarios.slots.slot_report import Parameters, SlotReport, SlotsOfRun, build
from dev.scenarios.soak import soak_figures
from dev.scenarios.soak.soak_plan import DECK, RESTARTED
from dev.scenarios.soak.soak_records import FaultMark, JanitorRun, Records, SentMessage
from slotkeeper_cli.audit.work_history import GLUE_RUN, WorkHistory
from tests.cli.work_histories import START, whole
from tests.scenarios.reports import run_of

FAULTS = [FaultMark(START + 50, kind, "", "", START + 50) for kind in (*DECK, *RESTARTED)]


def nothing() -> WorkHistory:
    """A run of which no request started."""
    return replace(whole(), attempts=[], work=[], kept=[], run=None)


def slots(history: WorkHistory) -> SlotReport:
    return build(Parameters(5, 2, 0.4), SlotsOfRun("sample", GLUE_RUN, history), [], {"results": 3}, run_of(run=1.0))


def soak(history: WorkHistory, faults: list[FaultMark] = FAULTS) -> dict[str, Any]:
    good = SentMessage("sample", "a", "m1", "1", START, "{}")
    runs = [JanitorRun(START + 3, START + 4, True)]
    items = [Item("sample", 2, 0, {}, at=START)]
    recorded = Records(history, items, [good, replace(good, bad="not JSON")], runs, faults, START + 100)
    return soak_figures.build(soak_figures.Parameters(2.0, 1, 1), {"sample": 2}, START, recorded, run_of(storm=99.0))
