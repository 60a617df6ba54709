"""`python -m dev.benchmarks` (`make bench`): measure Slotkeeper next to other designs, and the cost of keys.

Exit codes: 0 measured; 1 it could not be measured; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.benchmarks import keys
from dev.benchmarks.designs import DESIGNS, Load, Work
from dev.benchmarks.measurement import Meter
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.deployment import DeploymentError
from dev.scenarios.runner.scenario import CannotContinue, Run, alone, engine, terminal

FOLDER = Path("build/bench")
REPORT, DATA = "report.md", "report.json"
# The janitor does not run during a measurement. On two cores, more containers at the same time would delay each other.
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "StarterConcurrency": "4",
    "MoreStateMachineArns": "arn:aws:states:us-east-1:000000000000:stateMachine:work",
}
WARM = Load(10, 5, 0.1)  # a round that is not counted: containers start in it
FULL, SMALL = (WARM, *[Load(100, 5, 0.3)] * 3), (Load(6, 2, 0.1),)  # the rounds
UNITS = {"starts a second": "", "hand-off, median": " s", "hand-off, p99": " s"}

Measured = Mapping[str, Sequence[Mapping[str, float]]]  # design -> figures of each round


@click.command()
@click.option("--small", is_flag=True, help="One round of a few requests, which only shows that it works.")
@click.option("--only", type=click.Choice(["designs", "keys"]), help="Only this part.")
def main(small: bool, only: str | None) -> None:
    """Measure Slotkeeper, AWS's semaphore sample, a lock client and a counter: how each starts requests, and its cost.

    Then, on DynamoDB Local, what keys of requests cost, and the turns that they give. Writes build/bench/report.md, and
    build/bench/report.json with the figures of each round.
    """
    console = terminal()
    rounds = SMALL if small else FULL
    about = conditions(rounds)
    console.print(*(f"[dim]{name:8} {escape(text)}[/]" for name, text in about.items()), sep="\n", highlight=False)
    try:
        with alone(FOLDER, [REPORT, DATA]):
            measured = {} if only == "keys" else measure(rounds, console)
            tables = {"Designs": rows_of(measured)} if measured else {}
            if only != "designs":
                tables |= keys.measure(FOLDER / "dynamodb.log", keys.SMALL if small else keys.FULL)
            data = {"about": about, "rounds": measured, "tables": tables}
            (FOLDER / DATA).write_text(json.dumps(data, indent=2) + "\n")
            (FOLDER / REPORT).write_text(markdown(about, tables))
    except (CannotContinue, EngineError, DeploymentError, LookupError, BotoCoreError, ClientError) as error:
        console.print(f"[bold red]It cannot be measured:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] All processes have ended.")
        sys.exit(130)
    for title, (heading, *rows) in tables.items():
        table = Table(*heading, title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(f"Written: {FOLDER}/{REPORT}, {FOLDER}/{DATA}", highlight=False)


def measure(rounds: Sequence[Load], console: Console) -> dict[str, list[dict[str, float]]]:
    """The figures of each design by round. The designs take turns."""
    run = Run(console)
    with engine(FOLDER / "engine", run, faults=True, lasting=True) as aws:
        with run.phase("deploy", "build and deploy"):
            aws.deploy(PARAMETERS)
        return compared(aws, rounds, run)


def compared(aws: EmbeddedAws, rounds: Sequence[Load], run: Run) -> dict[str, list[dict[str, float]]]:
    """The same on a deployed stack."""
    work = Work(aws)
    designs = [design(aws, work) for design in DESIGNS]
    meter = Meter(aws, [each.machine for each in designs if each.machine])
    found: dict[str, list[dict[str, float]]] = {each.title: [] for each in designs}
    for number, load in enumerate(rounds):
        for index, design in enumerate(designs):
            with run.phase(f"{design.title} {number}", f"{design.title}, {load.requests} requests"):
                figures = meter.measure(design, f"design{index}-{number}", load)
            if load is not WARM:
                found[design.title].append(figures.as_dict())
    return found


def rows_of(measured: Measured) -> list[list[str]]:
    """The table with its heading: the median of the rounds, and of their ratios to the first design's."""
    first, *_ = measured.values()
    rows = [["", *first[0]]]
    for title, rounds in measured.items():
        row = [title]
        for name in first[0]:
            value = median(each[name] for each in rounds)
            # Without a hand-off that took time there is no ratio.
            ratios = [each[name] / own[name] for each, own in zip(rounds, first, strict=True) if own[name]]
            times = f" ({median(ratios):.2g} x)" if ratios and rounds is not first else ""
            row.append(f"{value:.3g}{UNITS.get(name, '')}{times}")
        rows.append(row)
    return rows


def markdown(about: Mapping[str, str], tables: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """The content of report.md."""
    lines = ["# Measurements", "", *(f"- {name}: {text}" for name, text in about.items()), ""]
    for title, (heading, *others) in tables.items():
        marks = ["---", *["---:"] * (len(heading) - 1)]
        lines += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (heading, marks, *others)), ""]
    return "\n".join(lines)


def conditions(rounds: Sequence[Load]) -> dict[str, str]:
    """The load, the machine, the versions and the date, with the average number of busy processes."""
    packages, load, counted = ("boto3", "ministack"), rounds[-1], sum(each is not WARM for each in rounds)
    return {
        "load": f"{load.requests} requests, {load.slots} slots, {load.seconds:g} s of work, rounds: {counted}",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {os.getloadavg()[0]:.1f} busy processes",
        "versions": ", ".join(f"{name} {metadata.version(name)}" for name in packages)
        + f", Python {platform.python_version()}, {platform.system()} {platform.release()}",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}",
    }


if __name__ == "__main__":
    main()
