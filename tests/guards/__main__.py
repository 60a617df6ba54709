"""`python -m tests.guards`: remove each guard, and report what notices it.

Exit codes: 0 each is noticed, or listed as redundant; 1 one is not, or something fails without any change; 2 wrong
options; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "simulation")
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "simulation")
os.environ.setdefault("POWERTOOLS_TRACE_DISABLED", "true")

import click
import pytest
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from dev.emulator.environment import ROOT
from tests.guards import gate, sent
from tests.guards.all_rows import MUTATIONS, ROWS
from tests.guards.gate import GOOD, Broken, Verdict
from tests.guards.rows import Row

REPORT = ROOT / "build" / "guards" / "report.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only guards whose names start with this. Repeatable.")
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="Guards tried in parallel.")
@click.option("--report", type=click.Path(path_type=Path), default=REPORT, help="Another file for the report.")
def main(only: tuple[str, ...], jobs: int, report: Path) -> None:
    """Remove each guard, and report what notices it. Report: build/guards/report.md."""
    for name in only:
        # Names of senders are capitalized, those of rows are not. Which senders there are is seen later.
        if not name[:1].isupper() and not any(row.name.startswith(name) for row in ROWS):
            raise click.BadParameter(f"no row's name starts with {name!r}", param_hint="--only")
    sent.note_senders()
    rows = [row for row in ROWS if not only or row.name.startswith(only)]
    mutated = not only or any(name[:1].isupper() for name in only)
    paths = {row.noticed.partition("::")[0] for row in rows if isinstance(row.noticed, str)}
    session = Session(rows, only if mutated else None, jobs, report)
    selected = sorted({*paths, *gate.UNIT} if mutated else paths or {"tests/guards"})
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "--capture=no", f"--rootdir={ROOT}"]
    ended = pytest.main([*options, *(str(ROOT / path) for path in selected)], plugins=[session])
    sys.exit(130 if ended == pytest.ExitCode.INTERRUPTED else session.code)


class Session:
    """Tries the guards where pytest would run the tests that it has collected.

    Attributes:
        only: how the names of the mutations begin; empty: all of them; None: none.
    """

    code = 1

    def __init__(self, rows: Sequence[Row], only: tuple[str, ...] | None, jobs: int, report: Path) -> None:
        self.rows, self.only, self.jobs, self.report = rows, only, jobs, report
        self.console = Console(emoji=False)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.console.print(f"[bold red]{report.nodeid} cannot be collected:[/]", escape(str(report.longrepr)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        began, found = time.monotonic(), list[Verdict]()
        # Without a thread of its own, which a fork would not have.
        with Progress(console=self.console, auto_refresh=False) as progress:

            def bar(title: str, tasks: int) -> Callable[[], None]:
                task = progress.add_task(title, total=tasks)
                return lambda: (progress.advance(task), progress.refresh())[0]

            items = {item.nodeid: item for item in session.items}
            is_wanted = None if self.only is None else lambda name: not self.only or name.startswith(self.only)
            try:
                for verdict in gate.verdicts(self.rows, is_wanted, items, self.jobs, bar):
                    found.append(verdict)
                    if verdict.status not in GOOD:
                        self.console.print(
                            f"[bold red]{verdict.status}[/] {escape(' '.join(verdict[:1] + verdict[2:]))}"
                        )
            except Broken as error:
                self.console.print("[bold red]Without any change:[/]", escape(str(error)))
                return True
        if self.only == ():
            gone = set(MUTATIONS.values()) - {name for verdict in found for name in of_each_sender(verdict.name)}
            found += [Verdict(name, "gone", "", "a known failure names it") for name in sorted(gone)]
        good = sum(verdict.status in GOOD for verdict in found)
        self.code = int(good < len(found) or not found)
        summary = f"{good} of {len(found)} guards are noticed or redundant, in {time.monotonic() - began:.0f} s"
        write(self.report, summary, self.rows, found)
        self.console.print(f"{summary}: {self.report}", highlight=False)
        return True


def of_each_sender(name: str) -> list[str]:
    """The name of a guard for each of its senders: a part of a transaction may be made for several."""
    senders, colon, change = name.partition(": ")
    return [f"{sender}{colon}{change}" for sender in senders.split(", ")]


def write(report: Path, summary: str, rows: Sequence[Row], found: Sequence[Verdict]) -> None:
    """Write the report: each guard with what has noticed it."""
    bugs = {row.name: row.bug for row in rows}
    lines = [f"# {summary}", "", "| guard | verdict | by | how | bug |", "|---|---|---|---|---|"]
    for verdict in sorted(found):
        cells = (*verdict, bugs.get(verdict.name, ""))
        lines.append(f"| {' | '.join(cell.replace('|', '\\|') for cell in cells)} |")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
