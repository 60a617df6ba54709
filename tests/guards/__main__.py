"""`python -m tests.guards`: apply each known bug to a copy of the tree and report which test catches it.

Exit codes: 0 all are caught; 1 one is not, or the guards fail without a mutant; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import click
from rich.console import Console
from rich.markup import escape

from dev.emulator.environment import ROOT
from tests.guards.copies import copy_tree
from tests.guards.mutant_catalogue import Mutant, chosen, load
from tests.guards.trial import Trials, Verdict

ALL_SECONDS = 3600.0  # of all guards, without a mutant
REPORT = ROOT / "build" / "mutants" / "report.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only mutants whose names start with this. Repeatable.")
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="Mutants tried in parallel.")
@click.option("--list", "show", is_flag=True, help="List the mutants without trying them.")
def main(only: tuple[str, ...], jobs: int, show: bool) -> None:
    """Apply each known bug to a copy of the tree and report which test catches it. Report: build/mutants/report.md."""
    console = Console(emoji=False)
    try:
        mutants = chosen(load(), only)
    except LookupError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    if show:
        for mutant in mutants:
            console.print(f"{mutant.name}  [dim]{escape(mutant.bug)}[/]", highlight=False, soft_wrap=True)
        return
    try:
        sys.exit(run(console, mutants, jobs))
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] No report was written.")
        sys.exit(130)


def run(console: Console, mutants: Sequence[Mutant], jobs: int, *, source: Path = ROOT, report: Path = REPORT) -> int:
    """Try all mutants, each job in a copy of its own. Returns the exit code."""
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ExitStack() as opened,
        ThreadPoolExecutor(jobs) as pool,
    ):
        idle: SimpleQueue[Trials] = SimpleQueue()
        for number in range(jobs):
            copy_tree(source, Path(folder) / str(number))
            idle.put(opened.enter_context(Trials(Path(folder) / str(number))))

        def in_a_tree(task: Callable[[Trials], Verdict]) -> Verdict:
            trials = idle.get()
            try:
                return task(trials)
            finally:
                idle.put(trials)

        console.print("[dim]The guards, without any mutant ...[/]", highlight=False)
        guards = sorted({guard for mutant in mutants for guard in mutant.guards})
        shares = [guards[first::jobs] for first in range(min(jobs, len(guards)))]
        clean_runs = [partial(Trials.first_failure, name="", tests=share, seconds=ALL_SECONDS) for share in shares]
        for clean in pool.map(in_a_tree, clean_runs):
            if clean.status != "survived":
                console.print("[bold red]The guards fail without any mutant:[/]", _found(clean), highlight=False)
                return 1
        judged = [pool.submit(in_a_tree, partial(Trials.judge, mutant=mutant)) for mutant in mutants]
        verdicts: dict[str, Verdict] = {}
        try:
            for trial in as_completed(judged):
                verdict = trial.result()
                verdicts[verdict.mutant] = verdict
                colour = "green" if verdict.status == "caught" else "bold red"
                line = f"[{colour}]{verdict.status:8}[/] {verdict.mutant} [dim]{verdict.seconds:.1f} s[/]"
                console.print(line, _found(verdict), highlight=False, soft_wrap=True)
        finally:
            pool.shutdown(cancel_futures=True)
    caught = sum(verdict.status == "caught" for verdict in verdicts.values())
    summary = f"{caught} of {len(mutants)} known bugs were caught, in {time.monotonic() - started:.0f} s"
    _write(report, summary, mutants, verdicts)
    console.print(f"{summary}: {report}", highlight=False, soft_wrap=True)
    return 0 if caught == len(mutants) else 1


def _found(verdict: Verdict) -> str:
    return escape(f"{verdict.test.rpartition('.')[2]} {verdict.message}".strip())


def _write(report: Path, summary: str, mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> None:
    lines = [f"# {summary}", "", "| mutant | bug | verdict | test | message |", "|---|---|---|---|---|"]
    for mutant in mutants:
        verdict = verdicts[mutant.name]
        cells = (mutant.name, mutant.bug, verdict.status, verdict.test, verdict.message)
        lines.append(f"| {' | '.join(cell.replace('|', '\\|') for cell in cells)} |")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
