"""A run of a scenario: one at a time in its folder, with its own engine, timed phases, report and exit code.

Exit codes: 0 no check fails; 1 a check fails, or the run cannot continue; 2 wrong options; 130 interrupted.

Every report.json has these keys.

| key | meaning |
|---|---|
| `parameters` | the options of this run |
| `started_at` | the instant from which all others count, ISO 8601, UTC |
| `figures` | by name; times in seconds |
| `checks` | name, ok (null: this run could not show it), found |
| `ok` | no check fails |
| `phases` | duration of each phase in seconds |
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.deployment import DeploymentError
from dev.emulator.live_view import Stalled
from slotkeeper_cli.audit.check_result import CheckResult, first_of
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
LISTED = 10  # of a list of figures; the rest is in report.json
BATCH = 10  # entries of a SendMessageBatch ("Amazon SQS message quotas")


class CannotContinue(Exception):
    """The run cannot continue. The text states the reason."""


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


@dataclass(frozen=True)
class Scenario:
    """The stack and the engine of a run, and its folder.

    Args:
        folder: of report.json and the pages.
        stack: the parameters of the stack.
        engine: see EmbeddedAws.start.
    """

    folder: Path
    stack: Mapping[str, str] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        parameters: its options.
        started: epoch seconds from which its times count.
        figures: numbers of seconds, counts, texts, lists of texts; and counts or spreads by name.
        pages: by their names: the page of `slotkeeper audit --html`, and the picture in it.
    """

    parameters: DataclassInstance
    started: float
    checks: Sequence[CheckResult]
    figures: Mapping[str, Any]
    pages: Mapping[str, str] = field(default_factory=dict)

    def report(self, run: Run) -> dict[str, Any]:
        """The content of report.json."""
        return {
            "parameters": asdict(self.parameters),
            "started_at": datetime.fromtimestamp(self.started, UTC).isoformat(timespec="milliseconds"),
            "figures": self.figures,
            **checks_of_run.as_json(self.checks),
            "phases": {name: round(seconds, 2) for name, seconds in run.seconds.items()},
        }


def terminal() -> Console:
    """The console. A pipe has no width, and in 80 columns the tables' lines would break."""
    return Console(emoji=False) if sys.stdout.isatty() else Console(width=NO_TERMINAL_WIDTH, emoji=False)


@contextmanager
def alone(folder: Path, written: Sequence[str]) -> Iterator[None]:
    """Lock the folder, since two runs would share the engine's files, and remove the files that will be `written`.

    The lock ends with the process. Raises CannotContinue if another run has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotContinue(f"another run uses {folder}: wait for its end, or interrupt it") from None
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


def carry_out(scenario: Scenario, measure: Callable[[EmbeddedAws, Run], Outcome], *, watch: bool = False) -> NoReturn:
    """Start an engine, deploy the template, call `measure`, write and show what it returns, and exit.

    Args:
        measure: may raise CannotContinue and Stalled.
        watch: open the console of `slotkeeper web` before it.
    """
    console = terminal()
    run, folder = Run(console), scenario.folder
    try:
        with alone(folder, [*_FILES]), engine(folder, run, **scenario.engine) as aws:
            with run.phase("deploy", "build and deploy"):
                aws.deploy(scenario.stack)
            with watched(aws, console) if watch else nullcontext():
                outcome = measure(aws, run)
                write(folder, outcome, run)
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
    failed = checks_of_run.failing(outcome.checks)
    for check in failed:
        found = escape(checks_of_run.found(check))
        console.print(f"[bold red]FAILS[/] {escape(check.claim)}: {found}", highlight=False)
    sys.exit(1 if failed else 0)


def write(folder: Path, outcome: Outcome, run: Run) -> None:
    """Write report.json and the pages, print the figures and the checks, and name the files."""
    files = {**outcome.pages, REPORT: json.dumps(outcome.report(run), indent=2) + "\n"}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    figures = Table(title="The run, by the services' own records", title_justify="left", show_header=False)
    figures.add_column(style="bold")
    figures.add_column(overflow="fold")  # users search for ids, so none is cut
    for name, value in outcome.figures.items():
        figures.add_row(name, escape(as_text(value)))
    run.console.print("", figures, "", checks_of_run.table(outcome.checks), "", sep="\n")
    for name in files:
        run.console.print(f"{folder}/{name}: {_FILES[name]}", highlight=False)


def as_text(figure: Any) -> str:
    """A figure for the terminal. A spread has a count, and seconds by name."""
    match figure:
        case None | {"count": 0}:
            return "none"
        case {"count": count}:
            seconds = (f"{name} {value:.2f} s" for name, value in figure.items() if name != "count")
            return f"{', '.join(seconds)} ({count})"
        case Mapping():
            return ", ".join(f"{count} {name}" for name, count in figure.items()) or "none"
        case float():
            return f"{figure:.2f} s"
        case str() | int():
            return str(figure)
    return "\n".join(first_of(figure, LISTED)) or "none"


def since(instant: float | None, origin: float) -> float | None:
    """Seconds of a report."""
    return None if instant is None else rounded(instant - origin)


def send_all(sqs: Any, queue_url: str, entries: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Send entries by request id: the id of each message, and the epoch seconds before its call.

    Raises CannotContinue if SQS refuses entries: later requests would come before them.
    """
    sent: list[tuple[str, float]] = []
    for batch in batched(entries.items(), BATCH, strict=False):
        at = time.time()
        listed = [{"Id": str(i), **entry} for i, (_, entry) in enumerate(batch)]
        answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=listed)
        if refused := answer.get("Failed"):
            names = ", ".join(f"{batch[int(e['Id'])][0]} ({e['Code']}: {e.get('Message', '')})" for e in refused)
            raise CannotContinue(f"SQS refused {len(refused)} of {len(batch)} requests: {names}; {len(sent)} were sent")
        accepted = sorted(answer["Successful"], key=lambda entry: int(entry["Id"]))
        sent += [(entry["MessageId"], at) for entry in accepted]
    return sent
