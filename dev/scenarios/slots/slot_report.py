"""The report of `make run` for any kind of target: its checks, its figures, and its tables.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds):

| key | meaning |
|---|---|
| `requests` | requests sent |
| `succeeded`, `failed` | requests by their rows |
| `failures`, `without_start` | those that failed, and those that ended without a start: request, code, reason |
| `most_at_work` | the most weight at the same time by the records of what the slots ran, and the limit then |
| `granted_in_order` | the check of the order does not fail |
| `slots_in_use_at_end` | of the slot table, after the last workflow |
| `wait` | by priority: count, p50, p90, p99, max of the seconds from sending to start |
| `handoff` | count, p50, p99, max: from a release to the start of the workflow that took the slot |
| `slot_utilisation` | share of the slot-seconds that workflows hold, from the first start to the last |
| `total_seconds` | first request sent to last workflow ended |
| `more` | rows of this target alone |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from dev.judge.grant_order import Row
from dev.judge.slot_item import Item
from dev.scenarios.runner import audit
from dev.scenarios.runner.scenario import PAGE, PICTURE, Outcome, Run, figure_table, list_table, spread_text
from dev.scenarios.runner.whole_run import WholeRun, hand_offs
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State
from slotkeeper_cli.audit.audit_page import audit_page, history_timeline
from slotkeeper_cli.audit.check_result import CheckResult, Result
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.intervals import spread
from slotkeeper_cli.audit.start_checks import in_order
from slotkeeper_cli.audit.work_history import WorkHistory
from slotkeeper_cli.look.timeline import timeline_svg


@dataclass(frozen=True)
class Parameters:
    requests: int
    limit: int
    fail: float
    priorities: bool = False
    target: str = "glue"
    doorbell: bool = True


@dataclass(frozen=True)
class SlotsOfRun:
    """What one process left. `kind`: of what its slots ran. `changes`: the known writes of its item and its rows."""

    process: str
    kind: str
    history: WorkHistory
    run: WholeRun
    changes: Sequence[Item | Row] = ()


def build(
    parameters: Parameters, slots: SlotsOfRun, checks: Sequence[CheckResult], more: Mapping[str, object], run: Run
) -> Outcome:
    """The report of one run, with the page of `slotkeeper audit` and its picture. `checks`, `more`: of this target."""
    history, process = slots.history, slots.process
    starts = [each.started for each in history.attempts]
    window = (min(starts), max(starts)) if starts else (history.since, history.since)
    of = figures(history, window).get(process, {})
    states = Counter(each.state for each in history.rows)
    judged = [*audit.checks_of(history, slots.run, slots.changes), *checks]
    item = history.processes.get(process)
    peak = judged[0].numbers["processes"].get(process, {}).get(slots.kind, {})
    end = max([history.since, *(each.stopped or 0.0 for each in history.attempts)])
    content = {
        "requests": len(slots.run.sendings),
        "succeeded": states["SUCCEEDED"],
        "failed": states["FAILED"],
        "failures": _listed(history, ("FAILED",)),
        "without_start": _listed(history, ENDED_WITHOUT_START),
        "most_at_work": {"weight": peak.get("weight", 0), "limit": peak.get("limit")},
        "granted_in_order": in_order(history).result is not Result.FAILS,
        "slots_in_use_at_end": item.slots_in_use if item else None,
        "wait": {name: each["wait"] for name, each in of["priorities"].items()},
        "handoff": spread([seconds for _, seconds in hand_offs(history, slots.run, process)], p50=0.5, p99=0.99),
        "slot_utilisation": of["utilization"],
        "total_seconds": round(end - history.since, 3),
        "more": dict(more),
    }
    report = run.report(parameters, history.since, judged, content)
    picture = timeline_svg(history_timeline(history, process), file=True)
    pages = {PICTURE: picture, PAGE: audit_page(history, judged, "slotkeeper")}
    return Outcome(report, tables(report, slots.kind), pages)


def _listed(history: WorkHistory, states: Sequence[State]) -> list[dict[str, str]]:
    return [
        {"request": each.request_id, "code": each.code, "reason": each.reason}
        for each in history.rows
        if each.state in states
    ]


def tables(report: Mapping[str, Any], kind: str) -> list[Table]:
    """The figures, and the requests that did not succeed. `kind`: of what the slots ran."""
    most, use = report["most_at_work"], report["slot_utilisation"]
    waits = {f"wait of {name} requests": spread_text(wait) for name, wait in report["wait"].items()}
    hand_off = {{"p50": "median"}.get(name, name): value for name, value in report["handoff"].items()}
    rows = {
        "requests": report["requests"],
        "succeeded": report["succeeded"],
        "failed": report["failed"],
        "ended without a start": len(report["without_start"]),
        **report["more"],
        f"most {kind}s alive": f"{most['weight']} (limit {most['limit']})",
        "granted in the order of places": "yes" if report["granted_in_order"] else "no",
        "slots in use at the end": report["slots_in_use_at_end"],
        **(waits if len(waits) > 1 else {}),
        "hand-off": spread_text(hand_off, "no request had to wait"),
        "slot utilisation": "not measured" if use is None else f"{use:.0%}",
        "total time": f"{report['total_seconds']:.2f} s",
    }
    ended = (list(each.values()) for each in (*report["failures"], *report["without_start"]))
    return [
        figure_table("The run, by AWS's own records", rows),
        *list_table("Failed, or ended without a start", ("request", "code", "reason"), ended),
    ]
