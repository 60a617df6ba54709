"""`python -m tests.mutants`: apply each known bug to a copy of the tree and report which test catches it.

Exit codes: 0 all are caught; 1 one is not, or the guards fail without a mutant; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from dev.emulator.environment import ROOT
from dev.scenarios.runner.scenario import AlreadyRunning, alone, terminal
from tests.mutants import mutant_report
from tests.mutants.copies import copy_tree
from tests.mutants.mutant_catalogue import FOLDER, Mutant, chosen, load, nowhere
from tests.mutants.trial import REST, Verdict, green_without, judge

BUILD = ROOT / "build" / "mutants"
WRITTEN = ("report.json", "report.md")


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only mutants whose names start with this. Repeatable.")
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="Mutants tried in parallel.")
@click.option("--list", "show", is_flag=True, help="List the mutants without trying them.")
def main(only: tuple[str, ...], jobs: int, show: bool) -> None:
    """Apply each known bug to a copy of the tree and report which test catches it. Reports: build/mutants/."""
    console = terminal()
    try:
        mutants = chosen(load(), only)
    except LookupError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    if show:
        console.print(_list(mutants))
        return
    try:
        with alone(BUILD, WRITTEN):
            sys.exit(run(console, mutants, jobs))
    except AlreadyRunning as error:
        console.print(f"[bold red]The gate did not start:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] No report was written.")
        sys.exit(130)


def run(
    console: Console,
    mutants: Sequence[Mutant],
    jobs: int,
    *,
    source: Path = ROOT,
    folder: Path = BUILD,
    rest: Sequence[str] = REST,
) -> int:
    """Try all mutants. Returns the exit code."""
    started = time.monotonic()
    _empty(folder)
    base = folder / "base"
    copy_tree(source, base)
    console.print("[dim]The guards, without any mutant ...[/]", highlight=False)
    clean = green_without(base, mutants, jobs)
    if not clean.passed:
        console.print(f"[bold red]The guards fail without any mutant:[/] {escape(clean.failed)}", highlight=False)
        console.print(f"{escape(clean.message)}\nSee {folder}/base-*.log", highlight=False, soft_wrap=True)
        return 1
    console.print(f"[dim]... pass, after {time.monotonic() - started:.0f} s[/]", highlight=False)
    verdicts: dict[str, Verdict] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("mutants", total=len(mutants))
        for verdict in _judge_all(mutants, base, folder, rest, jobs):
            verdicts[verdict.mutant] = verdict
            if verdict.status == "caught":
                shutil.rmtree(folder / verdict.mutant)  # the other copies are kept for inspection
            if verdict.status != "caught" or not console.is_terminal:
                progress.console.print(mutant_report.line(verdict), highlight=False, soft_wrap=True)
            progress.advance(bar)
    seconds = time.monotonic() - started
    mutant_report.write(folder, mutants, verdicts, nowhere(FOLDER), seconds)
    if console.is_terminal:
        console.print(mutant_report.table(mutants, verdicts))
    console.print(
        f"{mutant_report.summary(verdicts, seconds)}: {folder / 'report.md'}", highlight=False, soft_wrap=True
    )
    return 0 if all(verdict.status == "caught" for verdict in verdicts.values()) else 1


def _judge_all(
    mutants: Sequence[Mutant], base: Path, folder: Path, rest: Sequence[str], jobs: int
) -> Iterator[Verdict]:
    with ThreadPoolExecutor(jobs) as pool:
        trials = [pool.submit(judge, mutant, base, folder, rest) for mutant in mutants]
        try:
            for trial in as_completed(trials):
                yield trial.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _empty(folder: Path) -> None:
    """Remove the files of an earlier run, except for the lock of this one."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _list(mutants: Sequence[Mutant]) -> Table:
    table = Table("mutant", "rows", "the bug", title=f"{len(mutants)} mutants", title_justify="left")
    for mutant in mutants:
        table.add_row(mutant.name, " ".join(mutant.rows), escape(mutant.bug))
    return table


if __name__ == "__main__":
    main()
