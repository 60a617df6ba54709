"""The frame of a run: one at a time in its folder, an engine of its own, phases said and timed, and its exit code.

Exit codes: 0 no check fails; 1 one does, or the run cannot go on; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.deployment import DeploymentError

from .checking import failing

NO_TERMINAL_WIDTH = 130  # characters


class CannotGoOn(Exception):
    """The run has to end here; the text says why, and what stands where."""


class AlreadyRunning(CannotGoOn):
    """Another run uses the same folder."""


class Command(click.Command):
    """Most users never type an option of these commands: they set the Makefile's variables, which the epilog names."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        try:
            return super().parse_args(context, arguments)
        except click.UsageError as error:
            error.message += f"\n{self.epilog}"
            raise


class Phases:
    """Times the phases and says each as it ends. The report has the seconds by key; the texts are for eyes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, key: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        self._console.print(f"[dim]{text} ...[/]", highlight=False)
        yield
        self.seconds[key] = time.monotonic() - began
        self._console.print(f"[dim]{text}: {self.seconds[key]:.1f} s[/]", highlight=False)


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
        for name in written:  # what lies there after a run that was broken off must not pass for its result
            (folder / name).unlink(missing_ok=True)
        yield


@contextmanager
def engine(folder: Path, phases: Phases, **asked: Any) -> Iterator[EmbeddedAws]:
    """The run's own engine, on a port of its own, ended whatever happens. `asked`: see EmbeddedAws.start.

    A second Ctrl-C during the end is ignored: it would leave behind what the first one asked to be ended.
    """
    with phases.phase("start", "start the embedded AWS"):
        aws = EmbeddedAws.start(folder, **asked)
    try:
        yield aws
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        with phases.phase("stop", "stop the embedded AWS"):
            aws.stop()


def carry_out(
    folder: Path,
    written: Sequence[str],
    run: Callable[[EmbeddedAws, Console, Phases], Mapping[str, Any]],
    **asked: Any,
) -> NoReturn:
    """Start an engine, let `run` use it and return its report, stop it, and exit with what the report's checks say.

    `asked`: see EmbeddedAws.start.
    """
    console = terminal()
    phases = Phases(console)
    try:
        with alone(folder, written), engine(folder, phases, **asked) as aws:
            report = run(aws, console, phases)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] The embedded AWS and all it started are ended; nothing is left running.")
        sys.exit(130)
    except (CannotGoOn, EngineError, DeploymentError, LookupError) as error:
        console.print(f"[bold red]The run cannot go on:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except (BotoCoreError, ClientError) as error:
        console.print(f"[bold red]The embedded AWS refused or is gone:[/] {escape(str(error))}", highlight=False)
        console.print(f"Its log: {folder}/engine.log")
        sys.exit(1)
    failed = failing(report)
    for check in failed:
        console.print(f"[bold red]FAILS[/] {escape(check['name'])}: {escape(check['found'])}", highlight=False)
    sys.exit(1 if failed else 0)
