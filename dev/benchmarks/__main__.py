"""`python -m dev.benchmarks` (`make bench`): measure each part next to its alternatives.

Exit codes: 0 measured, whether the goals are met or not; 1 a part could not be measured; 2 wrong options; 130
interrupted.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from dev.benchmarks import machine
from dev.benchmarks.outcome import Measured, Outcome, as_json, as_markdown
from dev.emulator.aws import EngineError
from dev.emulator.deployment import DeploymentError
from dev.scenarios.runner.scenario import AlreadyRunning, CannotContinue, alone, terminal

FOLDER = Path("build/bench")
WRITTEN = ("report.json", "report.md")
# In the order of the run: first the parts that use both processors, while the machine is calm.
PARTS = {
    "slot-cycle": "dev.benchmarks.slot_cycle.slot_cycle_benchmark",
    "lease-cycle": "dev.benchmarks.lease_cycle.lease_cycle_benchmark",
    "token": "dev.benchmarks.token.token_benchmark",
    "cold-start": "dev.benchmarks.cold_start.cold_start_benchmark",
    "outage": "dev.benchmarks.outage.outage_benchmark",
    "priorities": "dev.benchmarks.priorities.priorities_benchmark",
    "callers": "dev.benchmarks.callers.callers_benchmark",
    "hand-off": "dev.benchmarks.hand_off.hand_off_benchmark",
}
# Above this load another program uses the machine, and the figures are less exact.
CALM = 0.5  # of the processors


def chosen(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    """The names of the parts in the order of the run; all if `text` is empty."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PARTS:
            raise click.BadParameter(f"there is no part {name!r}. Expected: {', '.join(PARTS)}")
    return [name for name in PARTS if name in names or not names]


@click.command(context_settings={"max_content_width": 110})
@click.option("--only", "names", default="", callback=chosen, help=f"Parts: {','.join(PARTS)}. Default: all.")
@click.option("--small", is_flag=True, help="The smallest run, which only shows that the benchmark works.")
@click.option("--list", "listing", is_flag=True, help="List the parts and their durations.")
def main(names: list[str], small: bool, listing: bool) -> None:
    """Measure Slotkeeper next to its alternatives.

    Writes build/bench/report.md with all tables and build/bench/report.json with all figures.
    """
    console = terminal()
    if listing:
        for name in names:
            part = importlib.import_module(PARTS[name])
            console.print(f"{name:12} about {part.MINUTES:g} min  {part.TITLE}", highlight=False)
        return
    try:
        with alone(FOLDER, WRITTEN):
            failed = measure_all(names, small, console)
    except AlreadyRunning as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] All processes have ended. The measured parts are in build/bench.")
        sys.exit(130)
    sys.exit(1 if failed else 0)


def measure_all(names: Sequence[str], small: bool, console: Console) -> dict[str, str]:
    """Measure the parts, and write the report after each. Returns part -> error of those that failed."""
    about = machine.about()
    for name, text in about.items():
        console.print(f"[dim]{name:10} {escape(text)}[/]", highlight=False)
    done: list[Measured] = []
    failed: dict[str, str] = {}
    for name in names:
        load = machine.load()
        if not done and not failed and load > CALM * machine.processors():
            console.print(f"[yellow]Another program uses this machine (load {load:.1f}): timings are less exact.[/]")
        started = time.monotonic()
        try:
            title, outcome = measure(name, small, console)
        except (CannotContinue, EngineError, DeploymentError, LookupError, BotoCoreError, ClientError) as error:
            failed[name] = f"{type(error).__name__}: {error}"
            console.print(f"[bold red]{name} cannot be measured:[/] {escape(str(error))}", highlight=False)
        else:
            done.append(Measured(name, title, time.monotonic() - started, load, outcome))
            show(outcome, console)
        (FOLDER / "report.json").write_text(json.dumps(as_json(about, done, failed), indent=2) + "\n")
        (FOLDER / "report.md").write_text(as_markdown(about, done, failed))
    goals = [goal for part in done for goal in part.outcome.goals]
    console.rule(align="left")
    minutes = sum(part.seconds for part in done) / 60
    met = sum(goal.met for goal in goals)
    console.print(f"{met} of {len(goals)} goals met, in {minutes:.1f} min.", highlight=False)
    console.print(f"Written: {', '.join(f'{FOLDER}/{name}' for name in WRITTEN)}", highlight=False)
    if small:
        console.print("This was the smallest run. It shows that the benchmark works; its goals have no meaning.")
    return failed


def measure(name: str, small: bool, console: Console) -> tuple[str, Outcome]:
    """A part's title and outcome. Its folder is created anew."""
    part: Any = importlib.import_module(PARTS[name])
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console.rule(f"[bold]{part.TITLE}[/]", align="left")
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{name}: about {part.MINUTES:g} min", total=1.0)
        outcome: Outcome = part.measure(
            folder, lambda text, share: progress.update(task, description=escape(text), completed=share), small=small
        )
    return part.TITLE, outcome


def show(outcome: Outcome, console: Console) -> None:
    for grid in outcome.grids:
        console.print(grid.rich())
    for goal in outcome.goals:
        verdict = "[green]met[/]" if goal.met else "[bold red]MISSED[/]"
        console.print(f"{verdict}  {escape(goal.aim)}: {escape(goal.found)}", highlight=False, soft_wrap=True)
    for note in outcome.notes:
        console.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
