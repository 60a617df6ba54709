"""The command line: which commands there are, and how one that fails says so.

0  done          3  refused by a guard, or not confirmed: nothing was changed
1  a call failed 4  no such stack, process, holder, message or request
2  misused       5  a check found something to mend
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.retry.delivery import TooLarge
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.retry.message import InvalidMessage
from slotkeeper_cli import __doc__ as what_it_is
from slotkeeper_cli.commands import dlq, doctor, holder, process, request, retry, stack, status, token
from slotkeeper_cli.common import StackCommand, StackGroup
from slotkeeper_cli.errors import CommandError, NotFound

app = typer.Typer(
    name="slotkeeper",
    cls=StackGroup,
    help=what_it_is,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("status", cls=StackCommand)(status.status)
app.command("doctor", cls=StackCommand)(doctor.doctor)
for group in (process, holder, request, dlq, retry, token, stack):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])


def _version(wanted: bool) -> None:
    if wanted:
        try:
            which = metadata.version("slotkeeper")
        except metadata.PackageNotFoundError:
            which = "of a checkout"
        typer.echo(f"slotkeeper {which}")
        raise typer.Exit


@app.callback()
def everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """Who holds the slots of a Slotkeeper stack, who waits, what has failed, and what may be done about it."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command and ends with its exit code; a failure is a line on stderr, never a traceback."""
    try:
        code = app(arguments, standalone_mode=False)
    except CommandError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except (ClientError, BotoCoreError, MalformedRow, InvalidMessage, TooLarge) as error:
        _say(explain(error))
        sys.exit(1)
    except typer.Abort:
        _say("Interrupted.")
        sys.exit(130)
    except Exception as error:
        # The layer's own, of a process that was removed while the command looked. KeyError and the like are others.
        if type(error) is LookupError:
            _say(f"{error}")
            sys.exit(NotFound.exit_code)
        # click's own: usage errors, with the text that click makes of them.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(f"slotkeeper: {text}", markup=False)


def explain(error: Exception) -> str:
    """A failed call as a line that says what was called and what AWS answered, and what to do where that is known."""
    if not isinstance(error, ClientError):
        hint = {"NoCredentialsError": "sign in, or give --profile", "NoRegionError": "give --region"}
        advice = hint.get(type(error).__name__, "")
        return f"{error}".rstrip(".") + (f": {advice}" if advice else "")
    told = error.response["Error"]
    text = f"{error.operation_name} was answered {told.get('Code', '?')}: {told.get('Message', '')}"
    if "AccessDenied" in told.get("Code", ""):
        text += " (what the command needs: docs/permissions.md)"
    return text
