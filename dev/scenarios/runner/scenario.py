"""The frame of a run: one at a time in its folder, an engine of its own, timed phases, report, chart and exit code.

Exit codes: 0 no check fails; 1 one does, or the run cannot continue; 2 wrong options; 130 interrupted.

Every report.json has these keys; the module of each scenario's figures lists the others:

| key | meaning |
|---|---|
| `parameters` | the options of this run |
| `started_at` | the instant from which all others count, ISO 8601, UTC |
| `checks` | name, ok (null: this run could not show it), and what was found, for each claim the run has to show |
| `ok` | no check fails |
| `phases` | seconds each phase took |
"""

from __future__ import annotations

import fcntl
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.deployment import DeploymentError
from dev.emulator.live_view import STALLED_AFTER, Progress, Stalled, watch

from . import claims
from .claims import Claim

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NO_TERMINAL_WIDTH = 130  # characters
ROWS_SHOWN = 10  # of a table of single requests; the rest are in report.json


class CannotGoOn(Exception):
    """The run has to end here; the text states why."""


class AlreadyRunning(CannotGoOn):
    """Another run uses the same folder."""


# ------------------------------------------------------------------------------------------------------- command line


class Command(click.Command):
    """Most users never type an option of these commands: they set the Makefile's variables, which the epilog lists."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **{"context_settings": {"help_option_names": ["-h", "--help"]}, **settings})
        variables = (f"{str(option.name).upper()}={_allowed(option.type)}" for option in self.params)
        self.epilog = f"from make: {' '.join(variables)}"

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        try:
            return super().parse_args(context, arguments)
        except click.UsageError as error:
            error.message += f"\n{self.epilog}"
            raise


def _allowed(kind: click.ParamType) -> str:
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.min:g}..{kind.max:g}"
    return "any whole number"


class FiniteRange(click.FloatRange):
    """A FloatRange lets "nan" through, since it is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"nan is not in the range {self.min}<=x<={self.max}.", param, ctx)
        return number


def option(name: str, kind: click.ParamType | type[int], default: float, text: str) -> Callable[..., Any]:
    """An option of a run, whose help names its variable in the Makefile."""
    variable = name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, type=kind, default=default, show_default=True, help=f"{text} (make: {variable}).")


# ---------------------------------------------------------------------------------------------------------------- run


class Run:
    """A run's console, and its phases: each is timed and announced. The report has the seconds by key."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, key: str, text: str) -> Iterator[None]:
        started = time.monotonic()
        self.console.print(f"[dim]{text} ...[/]", highlight=False)
        yield
        self.seconds[key] = time.monotonic() - started
        self.console.print(f"[dim]{text}: {self.seconds[key]:.1f} s[/]", highlight=False)

    def watch[P: Progress](
        self, read: Callable[[float], P], title: str = "Slotkeeper", stalled_after: float = STALLED_AFTER
    ) -> P:
        """See dev.emulator.live_view.watch."""
        return watch(self.console, read, title, stalled_after)

    def report(
        self, parameters: DataclassInstance, started: float, checks: Sequence[Claim], figures: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What is written to report.json. `started`: epoch seconds."""
        return {
            "parameters": asdict(parameters),
            "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
            **figures,
            **claims.as_json(checks),
            "phases": {name: round(seconds, 2) for name, seconds in self.seconds.items()},
        }


@dataclass(frozen=True)
class Scenario:
    """What a run writes and shows of its report.

    Args:
        folder: where report.json and the chart are written.
        chart: the chart's file name.
        draw: draws the chart of a report into a file.
        tables: the report for the terminal, all but its checks.
        engine: see EmbeddedAws.start.
    """

    folder: Path
    chart: str
    draw: Callable[[Mapping[str, Any], Path], None]
    tables: Callable[[Mapping[str, Any]], Sequence[Table]]
    engine: Mapping[str, Any] = field(default_factory=dict)


def terminal() -> Console:
    """A pipe has no width of its own, and 80 columns break the tables' lines."""
    return Console(emoji=False) if sys.stdout.isatty() else Console(width=NO_TERMINAL_WIDTH, emoji=False)


@contextmanager
def alone(folder: Path, written: Sequence[str]) -> Iterator[None]:
    """Two runs at once would share the engine's files and what is `written`. The lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"another run uses {folder}: wait for its end, or interrupt it") from None
        for name in written:  # the files of an earlier run must not pass for this one's result
            (folder / name).unlink(missing_ok=True)
        yield


@contextmanager
def engine(folder: Path, run: Run, **options: Any) -> Iterator[EmbeddedAws]:
    """The run's own engine, on a port of its own, ended whatever happens. `options`: see EmbeddedAws.start.

    A second Ctrl-C during the end is ignored: it would leave behind what the first one asked to be ended.
    """
    with run.phase("start", "start the embedded AWS"):
        aws = EmbeddedAws.start(folder, **options)
    try:
        yield aws
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        with run.phase("stop", "stop the embedded AWS"):
            aws.stop()


def carry_out(scenario: Scenario, perform: Callable[[EmbeddedAws, Run], Mapping[str, Any]]) -> NoReturn:
    """Start an engine, let `perform` use it and return its report, write and show that, and exit with its verdict."""
    console = terminal()
    run, folder = Run(console), scenario.folder
    try:
        with alone(folder, ("report.json", scenario.chart)), engine(folder, run, **scenario.engine) as aws:
            report = perform(aws, run)
            write(scenario, report, console)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] The embedded AWS and all it started are ended; nothing is left running.")
        sys.exit(130)
    except (CannotGoOn, Stalled, EngineError, DeploymentError, LookupError) as error:
        console.print(f"[bold red]The run cannot continue:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except (BotoCoreError, ClientError) as error:
        console.print(f"[bold red]The embedded AWS refused or is gone:[/] {escape(str(error))}", highlight=False)
        console.print(f"Its log: {folder}/engine.log")
        sys.exit(1)
    failed = claims.failing(report)
    for check in failed:
        console.print(f"[bold red]FAILS[/] {escape(check['name'])}: {escape(check['found'])}", highlight=False)
    sys.exit(1 if failed else 0)


def write(scenario: Scenario, report: Mapping[str, Any], console: Console) -> None:
    """report.json, the chart, and the tables on the screen."""
    (scenario.folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    scenario.draw(report, scenario.folder / scenario.chart)
    for each in (*scenario.tables(report), claims.table(report)):
        console.print("", each, sep="\n")
    console.print("", f"{scenario.folder}/report.json, {scenario.folder}/{scenario.chart}", sep="\n", highlight=False)


# ------------------------------------------------------------------------------------------------------------- tables


def figure_table(title: str, rows: Mapping[str, object]) -> Table:
    """A figure on each line."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, escape(str(value)))
    return table


def list_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Table]:
    """The first rows; no table without rows."""
    listed = list(rows)
    rest = len(listed) - ROWS_SHOWN
    caption = f"and {rest} more in report.json" if rest > 0 else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")  # an id that is cut cannot be searched for
    for row in listed[:ROWS_SHOWN]:
        table.add_row(*(escape(str(cell)) for cell in row))
    return [table] if listed else []
