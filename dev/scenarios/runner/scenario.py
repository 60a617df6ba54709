"""A run of a scenario: one at a time in its folder, with its own engine, timed phases, report and exit code.

Exit codes: 0 no check fails; 1 a check fails, or the run cannot continue; 2 wrong options; 130 interrupted.

Every report.json has these keys. The module with a scenario's figures lists the others.

| key | meaning |
|---|---|
| `parameters` | the options of this run |
| `started_at` | the instant from which all others count, ISO 8601, UTC |
| `checks` | name, ok (null: this run could not show it), found |
| `ok` | no check fails |
| `phases` | duration of each phase in seconds |
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
from dev.emulator.live_view import Stalled
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import rounded
from slotkeeper_cli.stack_connection import LOCAL_FILE

from . import checks as checks_of_run

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NO_TERMINAL_WIDTH = 130  # characters
REPORT, PAGE, PICTURE = "report.json", "audit.html", "timeline.svg"
_FILES = {
    PICTURE: "slots over time: who held one, and who waited",
    PAGE: "the same for a browser, with each request, the figures and the checks",
    REPORT: "the figures and the checks as data",
}
ROWS_SHOWN = 10  # of a table of single requests; the rest are in report.json


class CannotContinue(Exception):
    """The run cannot continue. The text states the reason."""


class AlreadyRunning(CannotContinue):
    """Another run uses the folder."""


# ------------------------------------------------------------------------------------------------------- command line


class Command(click.Command):
    """A command whose epilog lists the Makefile's variables, which most users set instead of its options."""

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
    if isinstance(kind, click.Choice):
        return "|".join(kind.choices)
    return "any whole number"


class FiniteRange(click.FloatRange):
    """A FloatRange that refuses "nan", which is neither below the minimum nor above the maximum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"nan is not in the range {self.min}<=x<={self.max}.", param, ctx)
        return number


def option(name: str, kind: click.ParamType | type[int], default: float | str, text: str) -> Callable[..., Any]:
    """An option whose help names its variable in the Makefile."""
    variable = name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, type=kind, default=default, show_default=True, help=f"{text} (make: {variable}).")


# ---------------------------------------------------------------------------------------------------------------- run


class Run:
    """The console of a run, and the seconds of its phases by key."""

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

    def report(
        self, parameters: DataclassInstance, started: float, checks: Sequence[CheckResult], figures: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The content of report.json. `started`: epoch seconds."""
        return {
            "parameters": asdict(parameters),
            "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
            **figures,
            **checks_of_run.as_json(checks),
            "phases": {name: round(seconds, 2) for name, seconds in self.seconds.items()},
        }


@dataclass(frozen=True)
class Scenario:
    """The files of a run.

    Args:
        folder: of report.json and the pages.
        engine: see EmbeddedAws.start.
    """

    folder: Path
    engine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a run has found.

    Args:
        report: the content of report.json.
        tables: for the terminal, without the checks.
        pages: by their names: the page of `slotkeeper audit --html`, and the picture in it.
    """

    report: Mapping[str, Any]
    tables: Sequence[Table]
    pages: Mapping[str, str] = field(default_factory=dict)


def terminal() -> Console:
    """The console. A pipe has no width, and in 80 columns the tables' lines would break."""
    return Console(emoji=False) if sys.stdout.isatty() else Console(width=NO_TERMINAL_WIDTH, emoji=False)


@contextmanager
def alone(folder: Path, written: Sequence[str]) -> Iterator[None]:
    """Lock the folder, since two runs would share the engine's files, and remove the files that will be `written`.

    The lock ends with the process. Raises AlreadyRunning.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"another run uses {folder}: wait for its end, or interrupt it") from None
        for name in written:  # files of an earlier run would look like this run's result
            (folder / name).unlink(missing_ok=True)
        yield


@contextmanager
def engine(folder: Path, run: Run, **options: Any) -> Iterator[EmbeddedAws]:
    """An engine on its own port, which is always stopped. `options`: see EmbeddedAws.start.

    A Ctrl-C during the stop is ignored: it would leave processes behind.
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


@contextmanager
def watched(aws: EmbeddedAws, console: Console) -> Iterator[None]:
    """Open the console in the browser; on a terminal, leave it open after the run until Ctrl-C.

    Raises:
        CannotContinue: the console did not start; it has printed its error.
    """
    # In the root folder, from where it does not find the stack of `make local-up`. An address that opens the console is
    # on stderr, if that is a terminal.
    served = subprocess.Popen(
        [sys.executable, "-m", "slotkeeper_cli", "--local", "web"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=aws.state_dir.absolute().anchor,
        env=os.environ
        | {
            LOCAL_FILE: str(aws.state_dir.absolute() / "outputs.json"),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        },
    )
    try:
        said = served.stdout.readline().strip() if served.stdout else ""
        if "http://" not in said:
            raise CannotContinue("the console did not start, for the reason above")
        console.print(said, highlight=False, markup=False)
        yield
        if sys.stdout.isatty():
            console.print("The console and the stack stay until Ctrl-C.")
            served.wait()
    finally:
        served.terminate()
        served.wait()


def carry_out(
    scenario: Scenario,
    stack: Mapping[str, str],
    measure: Callable[[EmbeddedAws, Run], Outcome],
    *,
    watch: bool = False,
) -> NoReturn:
    """Start an engine, deploy the template, call `measure`, write and show what it returns, and exit.

    Args:
        stack: the parameters of the stack.
        measure: may raise CannotContinue and Stalled.
        watch: open the console of `slotkeeper web` before it.
    """
    console = terminal()
    run, folder = Run(console), scenario.folder
    try:
        with alone(folder, [*_FILES]), engine(folder, run, **scenario.engine) as aws:
            with run.phase("deploy", "build and deploy"):
                aws.deploy(stack)
            with watched(aws, console) if watch else nullcontext():
                outcome = measure(aws, run)
                write(scenario, outcome, console)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] The embedded AWS and its processes have ended; nothing is left running.")
        sys.exit(130)
    except (CannotContinue, Stalled, EngineError, DeploymentError, LookupError) as error:
        console.print(f"[bold red]The run cannot continue:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except (BotoCoreError, ClientError) as error:
        console.print(f"[bold red]A call of the embedded AWS failed:[/] {escape(str(error))}", highlight=False)
        console.print(f"Its log: {folder}/engine.log")
        sys.exit(1)
    failed = checks_of_run.failing(outcome.report)
    for check in failed:
        console.print(f"[bold red]FAILS[/] {escape(check['name'])}: {escape(check['found'])}", highlight=False)
    sys.exit(1 if failed else 0)


def write(scenario: Scenario, outcome: Outcome, console: Console) -> None:
    """Write report.json and the pages, print the tables, and name the files."""
    files = {**outcome.pages, REPORT: json.dumps(outcome.report, indent=2) + "\n"}
    for name, text in files.items():
        (scenario.folder / name).write_text(text, encoding="utf-8")
    for each in (*outcome.tables, checks_of_run.table(outcome.report)):
        console.print("", each, sep="\n")
    console.print()
    for name in files:
        console.print(f"{scenario.folder}/{name}: {_FILES[name]}", highlight=False)


# ------------------------------------------------------------------------------------------------------------- tables


def figure_table(title: str, rows: Mapping[str, object]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, escape(str(value)))
    return table


def list_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Table]:
    """A table of the first rows, or none without rows."""
    listed = list(rows)
    rest = len(listed) - ROWS_SHOWN
    caption = f"and {rest} more in report.json" if rest > 0 else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")  # users search for ids, so none is cut
    for row in listed[:ROWS_SHOWN]:
        table.add_row(*(escape(str(cell)) for cell in row))
    return [table] if listed else []


def spread_text(spread: Mapping[str, Any], none: str = "none") -> str:
    """Each figure of the spread in seconds, and the count in parentheses."""
    figures = (f"{name} {value:.2f} s" for name, value in spread.items() if name != "count")
    return f"{', '.join(figures)} ({spread['count']})" if spread["count"] else none


def since(instant: float | None, origin: float) -> float | None:
    """Seconds of a report."""
    return None if instant is None else rounded(instant - origin)


def counts_text(counts: Mapping[str, int], form: str = "{count} {name}") -> str:
    return ", ".join(form.format(count=count, name=name) for name, count in counts.items()) or "none"
