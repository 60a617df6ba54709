"""The command `python -m dev.smoke`: options, confirmation of the cost, progress and exit code.

Exit codes: 0 no answer is different; 1 one is, or something is left behind; 2 wrong options, no such stack, or not
confirmed; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape

from dev.emulator.environment import ROOT
from dev.smoke import smoke_report
from dev.smoke.check_catalogue import BY_NAME, CHECKS, Check
from dev.smoke.check_context import AWS, EMBEDDED
from dev.smoke.check_runner import run_checks
from dev.smoke.facts import Refused
from dev.smoke.stack_under_test import StackUnderTest, embedded, in_account

FOLDER = ROOT / "build" / "smoke"
LOCAL_OUTPUTS = ROOT / "build" / "local" / "outputs.json"
WIDTH = 140  # characters, where there is no terminal


def _chosen(_context: click.Context, _option: click.Parameter, value: str) -> list[Check]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name not in BY_NAME]:
        raise click.BadParameter(f"there is no check {', '.join(unknown)}. The checks are {', '.join(BY_NAME)}")
    return [check for check in CHECKS if not names or check.name in names]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--stack", "name", metavar="NAME", help="Deployed stack in your account.")
@click.option("--profile", help="Profile of the AWS CLI; by default as the AWS CLI finds it.")
@click.option("--region", help="Region; by default as the AWS CLI finds it.")
@click.option("--local", is_flag=True, help="Use the stack of `make local-up`, free of charge.")
@click.option("--outputs", type=click.Path(path_type=Path), default=LOCAL_OUTPUTS, hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Folder of the report (build/smoke/).")
@click.option("--only", "checks", callback=_chosen, default="", metavar="NAME,NAME", help="Run only these checks.")
@click.option("--list", "listed", is_flag=True, help="List the checks and their facts, and exit.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of the cost.")
def main(
    name: str | None,
    profile: str | None,
    region: str | None,
    local: bool,
    outputs: Path,
    folder: Path,
    checks: list[Check],
    listed: bool,
    yes: bool,
) -> None:
    """Check on a deployed stack the facts about AWS that local engines cannot show.

    The checks create processes whose names begin with smoke-, and remove them, also after a failure or Ctrl-C.
    """
    console = Console(emoji=False) if sys.stdout.isatty() else Console(width=WIDTH, emoji=False)
    if listed:
        smoke_report.show_catalogue(console, checks)
        return
    if local == bool(name):
        raise click.UsageError("give either --stack NAME, or --local for the stack of `make local-up`")
    try:
        stack = embedded(outputs) if local else in_account(name or "", profile, region)
        _carry_out(console, stack, checks, folder, yes)
    except Refused as error:
        _end(console, str(error), 2)
    except (BotoCoreError, ClientError) as error:
        _end(console, f"a call of AWS failed: {error}", 2)


def _carry_out(console: Console, stack: StackUnderTest, checks: list[Check], folder: Path, yes: bool) -> None:
    _ = stack.outputs, stack.machine, stack.check_gap  # cached before threads read them
    if stack.sample_job is None:
        console.print("[yellow]This stack runs your own Glue job; checks that need the sample job show nothing.[/]")
    if not stack.local:
        account = stack.outputs["WorkflowArn"].split(":")[4]
        console.print(f"Stack {stack.name}, account {account}, {stack.region}", highlight=False)
        smoke_report.show_plan(console, checks)
        if not yes and not _confirmed():
            raise Refused("not confirmed: nothing was done. To run without confirmation, add --yes")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleaned up like Ctrl-C
    started, lock = time.monotonic(), threading.Lock()

    def say(check: str, line: str) -> None:
        with lock:
            console.print(f"[dim]{time.monotonic() - started:4.0f} s[/]  {check:9} {escape(line)}", highlight=False)

    try:
        run, results = run_checks(stack, checks, EMBEDDED if stack.local else AWS, say)
    except KeyboardInterrupt:
        _end(console, "interrupted", 130)
    made = smoke_report.make(stack, run, results)
    smoke_report.show(console, made)
    for file in smoke_report.write(made, folder):
        console.print(f"[dim]{file}[/]", highlight=False)
    sys.exit(0 if made["ok"] else 1)


def _confirmed() -> bool:
    return sys.stdin.isatty() and click.confirm("Continue?")


def _end(console: Console, reason: str, code: int) -> NoReturn:
    console.print(f"[bold red]smoke:[/] {escape(reason)}", highlight=False)
    sys.exit(code)
