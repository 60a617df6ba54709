"""`make soak`: deploy, send for minutes while everything goes wrong that can, mend, drain, judge, stop.

Exit codes: see dev/scenarios/runner/command.py.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.command import Command, Phases, carry_out
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.slots.records import read_glue_runs

from . import picture, records, summary, view
from .beside import Rounds
from .course import Course
from .plan import burst, draw
from .report import Parameters, build
from .stage import ENGINE, GRACE, JOB, PARAMETERS, Stage

RUN_DIR = Path("build/soak")
WRITTEN = ("report.json", "soak.png")
LEAST_MINUTES, MOST_MINUTES, MOST_SLOTS = 0.1, 120.0, 20
FROM_MAKE = f"from make: MINUTES={LEAST_MINUTES:g}..{MOST_MINUTES:g} SEED=any whole number LIMIT=1..{MOST_SLOTS}"
CALM_EACH = 4  # requests beyond the slots, in the calm at the end


def collect(stage: Stage, course: Course, rounds: Rounds, calm_from: float) -> records.Records:
    """Everything that was written down. FailedRequestQueue and the dead-letter queue are emptied by it."""
    stage.journal.read()
    outputs = stage.outputs
    return records.Records(
        sent=course.sent,
        executions=records.read_executions(stage.stepfunctions, outputs["WorkflowArn"]),
        runs=read_glue_runs(stage.glue, JOB),
        kept=records.read_kept(records.drain(stage.sqs, outputs["FailedRequestQueueUrl"])),
        dead=records.read_dead(records.drain(stage.sqs, outputs["RequestDeadLetterQueueUrl"])),
        changes=[change for change in stage.journal.changes if change.process in course.plan.limits],
        rounds=rounds.done,
        marks=sorted(course.marks, key=lambda mark: mark.at),
        calm_from=calm_from,
        grace=GRACE,
        left={
            "on RequestQueue": stage.queued(),
            "running": len(stage.running()),
            "holders": sum(len(change.holders) for change in stage.journal.read().values()),
        },
    )


def perform(aws: EmbeddedAws, parameters: Parameters, console: Console, phases: Phases) -> dict[str, Any]:
    """The soak on an engine that is up, with `faults` and `lasting`; returns the report."""
    with phases.phase("deploy", "build and deploy"):
        aws.deploy(PARAMETERS)
    plan = draw(parameters.minutes, parameters.seed, parameters.limit)
    stage = Stage(aws)
    stage.prepare(plan.limits)
    with for_console(console, view.panel, view.plain_line) as shown, Rounds(stage) as rounds:
        course = Course(stage, plan, shown, rounds)
        with phases.phase("storm", f"{counted(len(plan.sends), 'request')}, {counted(len(plan.faults), 'fault')}"):
            course.storm()
        with phases.phase("drain", "mend, and drain the queue"):
            course.mend()
            course.settle("drain", rounds=2)
        with phases.phase("calm", "the same without faults and without the janitor"):
            rounds.resting.set()
            calm_from = time.time()
            for send in burst(plan.limits, CALM_EACH):
                course.send(send)
            course.settle("calm", rounds=0)
            rounds.resting.clear()
            course.settle("calm", rounds=2)  # whatever is left now, the janitor would have found
    with phases.phase("collect", "collect the records"):
        found = collect(stage, course, rounds, calm_from)
    return build(parameters, plan.limits, course.began, found, phases.seconds, load=os.getloadavg())


def write(report: dict[str, Any], console: Console) -> None:
    (RUN_DIR / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    picture.draw(report, RUN_DIR / "soak.png")
    summary.show(console, report)
    console.print(f"{RUN_DIR}/report.json, {RUN_DIR}/soak.png", highlight=False)


def _number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """FloatRange lets "nan" through, since it is neither below nor above anything."""
    if math.isnan(value):
        raise click.BadParameter(f"nan is not in the range {LEAST_MINUTES:g}<=x<={MOST_MINUTES:g}.")
    return value


@click.command(cls=Command, epilog=FROM_MAKE, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--minutes",
    type=click.FloatRange(LEAST_MINUTES, MOST_MINUTES),
    default=10.0,
    callback=_number,
    show_default=True,
    help="For how long requests are sent and things go wrong (make: MINUTES).",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="What the requests and the faults are drawn from: the same seed gives the same schedule (make: SEED).",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_SLOTS),
    default=3,
    show_default=True,
    help="The slots of the first of three processes; the second has one less, the third has one (make: LIMIT).",
)
def main(minutes: float, seed: int, limit: int) -> None:
    """Keep the deployed stack busy while workflows are aborted, containers killed, calls refused and answers lost.

    On the way limits change, processes pause, messages come twice, and the engine itself is restarted, in order and in
    the middle of everything. Then all is mended and drained, and the records have to show that nothing was lost.
    Writes build/soak/report.json and build/soak/soak.png. Nothing outside this machine is touched, and nothing is left
    running.
    """

    def run(aws: EmbeddedAws, console: Console, phases: Phases) -> dict[str, Any]:
        report = perform(aws, Parameters(minutes, seed, limit), console, phases)
        write(report, console)
        return report

    carry_out(RUN_DIR, WRITTEN, run, faults=True, lasting=True, environment=ENGINE)
