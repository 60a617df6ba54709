"""The command line: the groups of commands, and the message and exit code of a command that fails.

0  success        3  refused by a guard, or not confirmed: nothing was changed
1  a call failed  4  no such stack, process, holder, message or request
2  usage error    5  a check found a problem
                  6  it asks a question, without a terminal and --yes: nothing was changed
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from slotkeeper import __version__
from slotkeeper_cli.commands import (
    audit,
    breaker,
    cancel_request,
    dlq,
    doctor,
    explain,
    failed,
    holder,
    list_requests,
    process,
    report,
    retry,
    stack,
    status,
    submit,
    token,
    web,
    what_if,
)
from slotkeeper_cli.context import StackCommand, StackGroup
from slotkeeper_cli.errors import FAILURES, CommandError, NotFound, failure_text
from slotkeeper_cli.output import PlainConsole

app = typer.Typer(
    name="slotkeeper",
    cls=StackGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("status", cls=StackCommand)(status.status)
app.command("explain", cls=StackCommand, help=explain.HELP)(explain.explain)
app.command("audit", cls=StackCommand, help=audit.HELP)(audit.show_audit)
app.command("what-if", cls=StackCommand, help=what_if.HELP)(what_if.what_if)
app.command("doctor", cls=StackCommand)(doctor.doctor)
app.command("web", cls=StackCommand, help=web.HELP)(web.web)
request = typer.Typer(help="Submit, list, show and cancel requests.", no_args_is_help=True)
request.command("submit", cls=StackCommand)(submit.submit)
request.command("list", cls=StackCommand)(list_requests.list_requests)
request.command("show", cls=StackCommand, help=explain.HELP)(explain.explain)
request.command("cancel", cls=StackCommand)(cancel_request.cancel)
app.add_typer(process.app, name="process")
app.add_typer(holder.app, name="holder")
app.add_typer(request, name="request")
app.add_typer(failed.app, name="failed")
app.add_typer(dlq.app, name="dlq")
app.add_typer(retry.app, name="retry")
app.add_typer(token.app, name="token")
app.add_typer(stack.app, name="stack")
retry.app.add_typer(breaker.app, name="breaker")
retry.app.command("limit", cls=StackCommand)(breaker.limit_callers)
retry.app.command("report", cls=StackCommand)(report.report)


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
    except FAILURES as error:
        _print_error(failure_text(error))
        sys.exit(1)
    except typer.Abort:
        _print_error("Interrupted.")
        sys.exit(130)
    except Exception as error:
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
