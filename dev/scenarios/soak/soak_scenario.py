"""`make soak`: send requests for minutes while every kind of fault acts, remove the faults, drain, judge."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import LiveView, counted
from dev.scenarios.runner import audit
from dev.scenarios.runner.janitor_clock import JanitorClock
from dev.scenarios.runner.scenario import Command, FiniteRange, Outcome, Run, Scenario, carry_out, option

from .fault_player import FaultPlayer
from .soak_plan import burst, draw
from .soak_report import BOUNDS, Parameters, Records, build, whole_run
from .soak_stack import ENGINE, GRACE, JANITOR_PERIOD, PARAMETERS, SoakStack

CALM_EACH = 4  # requests per process in addition to its slots, after the faults
SCENARIO = Scenario(Path("build/soak"), {"faults": True, "lasting": True, "environment": ENGINE})


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on a stack with PARAMETERS, on an engine with `faults` and `lasting`."""
    plan = draw(parameters.minutes, parameters.seed, parameters.limit)
    stack = SoakStack(aws)
    stack.prepare(plan.limits)
    with LiveView(run.console, "Slotkeeper: soak") as view, JanitorClock(aws, JANITOR_PERIOD) as janitor:
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
        stack.journal.read()
        changes = [each for each in stack.journal.changes if each.process in plan.limits]
        items = [each for each in stack.journal.items if each.process in plan.limits]
        faults = sorted(player.marks, key=lambda mark: mark.at)
        received = stack.receivers.received()
        sendings = [
            *(each.sending for each in player.sent),
            *(each.sending for each in received.callers),
        ]
        known = whole_run(sendings, items, janitor.runs, faults, calm_from, GRACE)
        history, known = audit.read(aws, known, BOUNDS)
    records = Records(
        plan.limits, player.started, history, known, changes, player.sent, received, janitor.runs, faults, calm_from
    )
    return build(parameters, records, run)


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

    Limits change, processes pause, requests are cancelled, skipped or too late, messages are delivered twice, and the
    engine is restarted and killed. Then the faults are removed and the queue is drained, and the records must show that
    no request was lost. Writes build/soak/report.json and build/soak/audit.html. Uses nothing outside this machine, and
    leaves nothing running.
    """
    carry_out(SCENARIO, PARAMETERS, lambda aws, run: measure(aws, Parameters(minutes, seed, limit), run))
