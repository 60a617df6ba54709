"""`python -m dev.benchmarks` (`make bench`): measure Slotkeeper next to other designs.

Exit codes: 0 measured, whether the goals are met or not; 1 a benchmark could not be measured; 2 wrong options; 130
interrupted.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape

from dev.benchmarks.outcome import Outcome, about, as_json, as_markdown
from dev.emulator.aws import EngineError
from dev.emulator.deployment import DeploymentError
from dev.scenarios.runner.scenario import AlreadyRunning, CannotContinue, alone, terminal

FOLDER = Path("build/bench")
WRITTEN = ("report.json", "report.md")
BENCHMARKS = {
    "tables": "dev.benchmarks.tables.tables_benchmark",
    "hand-off": "dev.benchmarks.hand_off.hand_off_benchmark",
    "rate": "dev.benchmarks.rate.rate_benchmark",
    "outage": "dev.benchmarks.outage.outage_benchmark",
}


def chosen(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    """The names in the order of the run; all if `text` is empty."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BENCHMARKS:
            raise click.BadParameter(f"there is no benchmark {name!r}. Expected: {', '.join(BENCHMARKS)}")
    return [name for name in BENCHMARKS if name in names or not names]


@click.command(context_settings={"max_content_width": 110})
@click.option("--only", "names", default="", callback=chosen, help=f"Of: {','.join(BENCHMARKS)}. Default: all.")
@click.option("--small", is_flag=True, help="The smallest run, which only shows that the benchmark works.")
@click.option("--list", "listing", is_flag=True, help="List the benchmarks and their durations.")
def main(names: list[str], small: bool, listing: bool) -> None:
    """Measure Slotkeeper next to other designs.

    Writes build/bench/report.md with all tables and build/bench/report.json with all figures.
    """
    console = terminal()
    if listing:
        for name in names:
            benchmark = importlib.import_module(BENCHMARKS[name])
            console.print(f"{name:12} about {benchmark.MINUTES:g} min  {benchmark.TITLE}", highlight=False)
        return
    try:
        with alone(FOLDER, WRITTEN):
            failed = measure_all(names, small, console)
    except AlreadyRunning as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] All processes have ended. What was measured is in build/bench.")
        sys.exit(130)
    sys.exit(1 if failed else 0)


def measure_all(names: Sequence[str], small: bool, console: Console) -> dict[str, str]:
    """Measure, and write the report after each benchmark. Returns benchmark -> error of those that failed."""
    conditions = about()
    for name, text in conditions.items():
        console.print(f"[dim]{name:10} {escape(text)}[/]", highlight=False)
    done: dict[str, Outcome] = {}
    failed: dict[str, str] = {}
    for name in names:
        try:
            done[name] = measure(name, small, console)
        except (CannotContinue, EngineError, DeploymentError, LookupError, BotoCoreError, ClientError) as error:
            failed[name] = f"{type(error).__name__}: {error}"
            console.print(f"[bold red]{name} cannot be measured:[/] {escape(str(error))}", highlight=False)
        (FOLDER / "report.json").write_text(json.dumps(as_json(conditions, done, failed), indent=2) + "\n")
        (FOLDER / "report.md").write_text(as_markdown(conditions, done, failed))
    console.print(f"Written: {', '.join(f'{FOLDER}/{name}' for name in WRITTEN)}", highlight=False)
    if small:
        console.print("This was the smallest run. It shows that the benchmark works; its goals have no meaning.")
    return failed


def measure(name: str, small: bool, console: Console) -> Outcome:
    """Measure one benchmark and print its tables and goals. Its folder is created anew."""
    benchmark: Any = importlib.import_module(BENCHMARKS[name])
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console.rule(f"[bold]{benchmark.TITLE}[/]", align="left")
    with console.status(f"about {benchmark.MINUTES:g} min") as status:
        outcome: Outcome = benchmark.measure(folder, lambda text: status.update(escape(text)), small=small)
    for grid in outcome.grids:
        console.print(grid.rich())
    for goal in outcome.goals:
        console.print(escape(str(goal)), style="green" if goal.met else "bold red", highlight=False, soft_wrap=True)
    return outcome


if __name__ == "__main__":
    main()
