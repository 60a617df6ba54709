"""`make soak`: send requests for minutes while every kind of fault acts, remove the faults, drain, judge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import LiveView, counted
from dev.scenarios.runner import audit
from dev.scenarios.runner.scenario import (
    Command,
    FiniteRange,
    Run,
    Scenario,
    carry_out,
    counts_text,
    figure_table,
    option,
    spread_text,
)
from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Panel, Point

from .fault_player import FaultPlayer, JanitorClock
from .soak_figures import Parameters, build
from .soak_plan import RESTARTED, burst, draw
from .soak_records import Records, bounds, whole_run
from .soak_stack import ENGINE, GRACE, PARAMETERS, SoakStack

CALM_EACH = 4  # requests per process in addition to its slots, after the faults


def perform(aws: EmbeddedAws, parameters: Parameters, run: Run) -> dict[str, Any]:
    """Run on a started engine with `faults` and `lasting`, and return the report."""
    with run.phase("deploy", "build and deploy"):
        aws.deploy(PARAMETERS)
    plan = draw(parameters.minutes, parameters.seed, parameters.limit)
    stack = SoakStack(aws)
    stack.prepare(plan.limits)
    with LiveView(run.console, "Slotkeeper: soak") as view, JanitorClock(stack) as janitor:
        player = FaultPlayer(stack, plan, view, janitor)
        with run.phase("storm", f"{counted(len(plan.sends), 'request')}, {counted(len(plan.faults), 'fault')}"):
            player.storm()
        with run.phase("drain", "remove the faults, and drain the queue"):
            player.remove_faults()
            player.settle("drain", janitor_runs=2)
        with run.phase("calm", "the same without faults and without the janitor"):
            janitor.paused.set()
            calm_from = time.time()
            for send in burst(plan.limits, CALM_EACH):
                player.send(send)
            player.settle("calm", janitor_runs=0)
            janitor.paused.clear()
            player.settle("calm", janitor_runs=2)  # the janitor frees slots that no workflow released
    with run.phase("collect", "collect the records"):
        records = collect(stack, player, janitor, calm_from)
    return build(parameters, plan.limits, player.started, records, run)


def collect(stack: SoakStack, player: FaultPlayer, janitor: JanitorClock, calm_from: float) -> Records:
    """All records."""
    stack.journal.read()
    items = [item for item in stack.journal.changes if item.process in player.plan.limits]
    faults = sorted(player.marks, key=lambda mark: mark.at)
    known = whole_run(items, janitor.runs, faults, calm_from)
    history = audit.read(stack.aws, [each.sending for each in player.sent], known, bounds(GRACE))
    return Records(history, items, player.sent, janitor.runs, faults, calm_from)


def tables(report: Mapping[str, Any]) -> list[Table]:
    runs = report["rounds"]
    rows = {
        "sent": f"{report['requests']} requests, {report['bad_messages']} bad messages",
        "workflows": counts_text(report["executions"]),
        "Glue runs": counts_text(report["glue_runs"]),
        "returned and started again": report["given_back"],
        "in FailedRequestQueue": report["kept"],
        "dead-lettered": report["dead_lettered"],
        "writes of the slot table": report["writes"],
        "janitor runs": f"{len(runs)}, {sum(each['ok'] for each in runs)} complete",
        "hand-off when calm": spread_text(report["handoff"]),
    }
    faults = dict(sorted(report["faults"].items(), key=lambda item: (-item[1], item[0])))
    return [figure_table("The soak, by the services' own records", rows), figure_table("Faults that acted", faults)]


def draw_chart(report: Mapping[str, Any], path: Path) -> None:
    """All faults, and the holders and Glue runs of each process against its limit."""
    kinds = sorted({mark["kind"] for mark in report["marks"]})
    colors = {kind: chart.VERMILLION if kind in RESTARTED else chart.INK for kind in kinds}
    faults = [Point(m["at"], kinds.index(m["kind"]) + 1, colors[m["kind"]], "", "|") for m in report["marks"]]
    end = max([report["calm_from"], *(at for p in report["processes"].values() for at, _ in p["held"])])
    failed = [check["name"] for check in report["checks"] if check["ok"] is False]
    verdict = f"{counted(len(failed), 'check')} failed" if failed else "no check fails"
    panels = [
        Panel(
            f"{len(report['marks'])} faults on {report['requests']} requests: {verdict}",
            "",
            0.6 + 0.22 * len(kinds),
            [
                lambda axes: chart.draw_points(axes, faults),
                lambda axes: axes.set_yticks(range(1, len(kinds) + 1), kinds, fontsize=8),
                lambda axes: axes.set_ylim(max(1, len(kinds)) + 0.8, 0.2),
                lambda axes: axes.axvline(report["calm_from"], color=chart.GREY, linestyle=":"),
            ],
        )
    ]
    panels += [_process_panel(name, process, end) for name, process in report["processes"].items()]
    chart.draw(path, "Slotkeeper soak", "seconds since the start; no faults after the dotted line", end, panels)


def _process_panel(name: str, process: Mapping[str, Any], end: float) -> Panel:
    return Panel(
        name,
        "slots",
        1.5,
        [
            lambda axes: chart.draw_steps(axes, process["held"], end, chart.SKY, "in use", filled=True),
            lambda axes: chart.draw_steps(axes, process["alive"], end, chart.BLUE, "Glue runs alive"),
            lambda axes: chart.draw_steps(axes, process["limits"], end, chart.VERMILLION, "limit (0: paused)"),
        ],
    )


SCENARIO = Scenario(
    Path("build/soak"), "soak.png", draw_chart, tables, {"faults": True, "lasting": True, "environment": ENGINE}
)


@click.command(cls=Command)
@option("--minutes", FiniteRange(0.1, 120.0), 10.0, "Minutes for which requests are sent and faults act")
@option("--seed", int, 1, "Draws the requests and faults; the same seed gives the same schedule")
@option(
    "--limit",
    click.IntRange(1, 20),
    3,
    "The slots of the first of three processes; the second has one less, the third has one",
)
def main(minutes: float, seed: int, limit: int) -> None:
    """Keep the deployed stack busy while workflows are aborted, containers killed, calls refused and answers lost.

    Limits change, processes pause, messages are delivered twice, and the engine is restarted and killed. Then the
    faults are removed and the queue is drained, and the records must show that no request was lost. Writes
    build/soak/report.json and build/soak/soak.png. Uses nothing outside this machine, and leaves nothing running.
    """
    carry_out(SCENARIO, lambda aws, run: perform(aws, Parameters(minutes, seed, limit), run))
