"""The command line: the groups of commands, and the message and exit code of a command that fails.

0  success        3  refused by a guard, or not confirmed: nothing was changed
1  a call failed  4  no such stack, process, holder, message or request
2  usage error    5  a check found a problem
                  6  it asks a question, without a terminal and --yes: nothing was changed
"""

from __future__ import annotations

import signal
import sys
from collections.abc import MutableMapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer.main

from slotkeeper import __version__
from slotkeeper_cli.context import StackCommand, StackGroup
from slotkeeper_cli.errors import CommandError, NotFound, failure_text, is_failure
from slotkeeper_cli.output import PlainConsole

# The commands in the order of the help: module and name of its function or group, or the group itself. The HELP of a
# module replaces the function's docstring.
_COMMANDS: dict[str, str | typer.Typer] = {
    "status": "status:status",
    "explain": "explain:explain",
    "audit": "audit:show_audit",
    "what-if": "what_if:what_if",
    "doctor": "doctor:doctor",
    "web": "web:web",
    "process": "process:app",
    "process repair": "repair_process:repair",
    "holder": "holder:app",
    "request": typer.Typer(help="Submit, list, show and cancel requests.", no_args_is_help=True),
    "request submit": "submit:submit",
    "request list": "list_requests:list_requests",
    "request show": "explain:explain",
    "request cancel": "cancel_request:cancel",
    "failed": "failed:app",
    "dlq": "dlq:app",
    "retry": "retry:app",
    "retry breaker": "breaker:app",
    "retry limit": "breaker:limit_callers",
    "retry report": "report:report",
    "token": "token:app",
    "stack": "stack:app",
}


@cache
def _command(word: str) -> Any:
    """The command or group of a first word. Only here its modules are imported, so that `--version` needs none."""
    root = group = typer.Typer()
    for path, place in _COMMANDS.items():
        first, _, second = path.partition(" ")
        if first != word:
            continue
        found: Any = place
        text = None
        if isinstance(place, str):
            module, _, name = place.partition(":")
            imported = import_module(f"slotkeeper_cli.commands.{module}")
            found, text = getattr(imported, name), getattr(imported, "HELP", None)
        if isinstance(found, typer.Typer):
            group.add_typer(found, name=second or first)
            group = group if second else found
        else:
            group.command(second or first, cls=StackCommand, help=text)(found)
    return typer.main.get_group(root).commands[word]


class _Root(StackGroup):
    """The root command, whose commands are imported one by one."""

    def list_commands(self, _: Any) -> list[str]:
        return [path for path in _COMMANDS if " " not in path]

    def get_command(self, _: Any, name: str) -> Any:
        return _command(name) if name in self.list_commands(None) else None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """All commands, of which click suggests one for a name that is none."""
        return {name: _command(name) for name in self.list_commands(None)}

    @commands.setter
    def commands(self, _: Any) -> None:
        """Ignore those that Typer knows: none."""


app = typer.Typer(
    name="slotkeeper",
    cls=_Root,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slotkeeper {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Operate a Slotkeeper stack: its slots, requests, retries and shared token."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code. A failure prints a line on stderr, not a traceback."""
    # `timeout`, or the end of a session, ends a command as an exception does: the terminal is restored, and messages
    # that the command has received become visible again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        code = app(arguments, standalone_mode=False)
    except CommandError as error:
        _print_error(*error.sentences)
        sys.exit(error.exit_code)
    except typer.Abort:
        _print_error("Interrupted.")
        sys.exit(130)
    except Exception as error:
        if is_failure(error):
            _print_error(failure_text(error))
            sys.exit(1)
        # The layer raises LookupError itself for a process that was removed meanwhile; a KeyError is a defect.
        if type(error) is LookupError:
            _print_error(f"{error}")
            sys.exit(NotFound.exit_code)
        # click's usage errors print their own text.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(text: str, *more: str) -> None:
    console = PlainConsole(stderr=True)
    for line in (f"slotkeeper: {text}", *more):
        console.print(line)
