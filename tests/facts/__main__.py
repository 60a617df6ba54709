"""The command `python -m tests.facts`, the smoke test: options, confirmation of the cost, progress and exit code.

Exit codes: 0 no answer is different; 1 one is, or something is left behind; 2 wrong options, no such stack, or not
confirmed; 130 interrupted.
"""

from __future__ import annotations

import json
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
from tests.facts import smoke, smoke_report
from tests.facts.facts import Fact
from tests.facts.stack import Refused, StackUnderTest, embedded, in_account

FOLDER = ROOT / "build" / "smoke"
LOCAL_OUTPUTS = ROOT / "build" / "local" / "outputs.json"
WIDTH = 140  # characters, where there is no terminal


def _chosen(_context: click.Context, _option: click.Parameter, value: str) -> list[Fact]:
    names = {name.strip() for name in value.split(",") if name.strip()}
    groups = {fact.group for fact in smoke.FACTS}
    if unknown := names - groups - {fact.name for fact in smoke.FACTS}:
        raise click.BadParameter(
            f"there is no group or row {', '.join(sorted(unknown))}. The groups are {', '.join(sorted(groups))}; "
            "--list shows their rows"
        )
    return [fact for fact in smoke.FACTS if not names or names & {fact.name, fact.group}]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--stack", "name", metavar="NAME", help="Deployed stack in your account.")
@click.option("--profile", help="Profile of the AWS CLI; by default as the AWS CLI finds it.")
@click.option("--region", help="Region; by default as the AWS CLI finds it.")
@click.option("--local", is_flag=True, help="Use the stack of `make local-up`, free of charge.")
@click.option("--outputs", type=click.Path(path_type=Path), default=LOCAL_OUTPUTS, hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Folder of the report (build/smoke/).")
@click.option("--only", "facts", callback=_chosen, default="", metavar="NAME,NAME", help="Only these groups or rows.")
@click.option("--list", "listed", is_flag=True, help="List the rows, and exit.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of the cost.")
def main(
    name: str | None,
    profile: str | None,
    region: str | None,
    local: bool,
    outputs: Path,
    folder: Path,
    facts: list[Fact],
    listed: bool,
    yes: bool,
) -> None:
    """Ask AWS for the facts that the tests' doubles of it, and the product, rely on; a deployed stack is used.

    The rows create resources whose names begin with smoke-, and remove them, also after a failure or Ctrl-C.
    """
    console = Console(emoji=False) if sys.stdout.isatty() else Console(width=WIDTH, emoji=False)
    if listed:
        smoke_report.show_catalogue(console, facts)
        return
    if local == bool(name):
        raise click.UsageError("give either --stack NAME, or --local for the stack of `make local-up`")
    try:
        stack = embedded(outputs) if local else in_account(name or "", profile, region)
        _carry_out(console, stack, facts, folder, yes)
    except Refused as error:
        _end(console, str(error), 2)
    except (BotoCoreError, ClientError) as error:
        _end(console, f"a call of AWS failed: {error}", 2)


def _carry_out(console: Console, stack: StackUnderTest, facts: list[Fact], folder: Path, yes: bool) -> None:
    _ = stack.outputs, stack.machine, stack.check_gap  # cached before threads read them
    if stack.sample_job is None:
        console.print("[yellow]This stack runs your own Glue job; rows that need the sample job show nothing.[/]")
    if not stack.local:
        account = stack.outputs["WorkflowArn"].split(":")[4]
        console.print(f"Stack {stack.name}, account {account}, {stack.region}", highlight=False)
        smoke_report.show_plan(console, facts)
        if not yes and not _confirmed():
            raise Refused("not confirmed: nothing was done. To run without confirmation, add --yes")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleaned up like Ctrl-C
    started, lock = time.monotonic(), threading.Lock()

    def say(fact: str, line: str) -> None:
        with lock:
            console.print(f"[dim]{time.monotonic() - started:4.0f} s[/]  {fact} {escape(line)}", highlight=False)

    try:
        run, results, left = smoke.run(stack, facts, say)
    except KeyboardInterrupt:
        _end(console, "interrupted", 130)
    made = smoke_report.make(stack, run, results, left)
    smoke_report.show(console, made)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    file.write_text(json.dumps(made, indent=2) + "\n")
    console.print(f"[dim]{file}[/]", highlight=False)
    sys.exit(0 if made["ok"] else 1)


def _confirmed() -> bool:
    return sys.stdin.isatty() and click.confirm("Continue?")


def _end(console: Console, reason: str, code: int) -> NoReturn:
    console.print(f"[bold red]smoke:[/] {escape(reason)}", highlight=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
