"""The options that all commands have, and the context made of them: stack, output, confirmation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer.main
from typer.core import TyperCommand, TyperGroup

from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandRefused, NeedsYes
from slotkeeper_cli.output import Output

if TYPE_CHECKING:
    from slotkeeper_cli.stack_connection import StackConnection

DEFAULT_STACK = "slotkeeper"
PANEL = "Connection"
_KEPT = "slotkeeper_cli.options"


class CommandContext:
    """The stack, the output and the confirmation of one command.

    `has_audited` is true once the command has written an audit line, after which it may have changed something.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.out = Output(as_json=options["json"])
        self.has_audited = False

    @cached_property
    def stack(self) -> StackConnection:
        """The stack; its outputs are read on first use."""
        return stack_of(self._options)

    def reconnect(self) -> None:
        """Let the next use of `stack` read the AWS configuration again."""
        self.__dict__.pop("stack", None)

    def confirm(self, question: str) -> None:
        """Ask the operator; return only if the answer is yes.

        Raises:
            CommandRefused: the answer is no.
            NeedsYes: there is no terminal, and --yes was not given.
        """
        if self._options["yes"]:
            return
        if not sys.stdin.isatty():
            raise NeedsYes(question, NeedsYes.why)
        if not typer.confirm(printable(question), err=True):
            raise CommandRefused("Nothing was changed.")


_current: ContextVar[CommandContext] = ContextVar("command")


def stack_of(options: Mapping[str, Any]) -> StackConnection:
    """The stack that the common options select.

    Raises:
        NotFound: --local, and no local stack is running.
    """
    # Only here, since boto3 takes a quarter of a second to import, which --version and --help do not need.
    from slotkeeper_cli import stack_connection  # noqa: PLC0415

    local = stack_connection.find_local() if options["local"] else None
    return stack_connection.StackConnection(options["stack"], options["profile"], options["region"], local)


def options_of(context: typer.Context) -> Mapping[str, Any]:
    """The common options of a command line that Typer has parsed, or as far as it is typed yet."""
    options: Mapping[str, Any] = context.meta[_KEPT]
    return options


def current_context() -> CommandContext:
    """The context of the running command."""
    return _current.get()


def _keep(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> None:
    kept = context.meta.setdefault(_KEPT, {})
    source = context.get_parameter_source(parameter.name) if parameter.name else None
    # An option given before the command applies, unless it is also given after the command.
    if source is not None and source.name != "DEFAULT":
        kept[parameter.name] = value
    else:
        kept.setdefault(parameter.name, value)


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, callback=_keep, expose_value=False, rich_help_panel=PANEL, **settings)


_COMMON = typer.Typer(add_completion=False)


@_COMMON.command(add_help_option=False)
def _common_options(
    stack: Annotated[str, _option("--stack", envvar="SLOTKEEPER_STACK", help="Name of the stack.")] = DEFAULT_STACK,
    profile: Annotated[
        str | None, _option("--profile", help="Profile of your AWS configuration, as in the AWS CLI.")
    ] = None,
    region: Annotated[str | None, _option("--region", help="AWS Region, as in the AWS CLI.")] = None,
    local: Annotated[
        bool,
        _option(
            "--local", envvar="SLOTKEEPER_LOCAL", help="Use the stack of make local-up instead of one in an account."
        ),
    ] = False,
    json: Annotated[bool, _option("--json", help="Print the result as JSON.")] = False,
    yes: Annotated[bool, _option("--yes", "-y", help="Answer yes to every question.")] = False,
) -> None:
    """Typer makes the options of its parameters, which every command takes."""


@cache
def _options() -> list[Any]:
    return typer.main.get_command(_COMMON).params


class _WithOptions:
    params: list[Any]
    help: str | None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # Typer would keep the line breaks of a docstring, which are not those of the terminal.
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        self.params.extend(_options())


class StackGroup(_WithOptions, TyperGroup):
    """The root command, which also takes the common options."""


class StackCommand(_WithOptions, TyperCommand):
    """A command with the common options."""

    def invoke(self, ctx: Any) -> Any:
        """Make the context, then run the command."""
        _current.set(CommandContext(options_of(ctx)))
        return super().invoke(ctx)
