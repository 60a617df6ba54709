"""The options that all commands have, and the context made of them: stack, output, confirmation."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import click
from click.core import ParameterSource
from typer.core import TyperCommand, TyperGroup, TyperOption

from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.output import Output
from slotkeeper_cli.stack_connection import DEFAULT_STACK, StackConnection, find_local

PANEL = "Connection"
_KEY = "slotkeeper_cli"


class CommandContext:
    """The stack, the output and the confirmation of one command.

    `has_audited` is true once the command has written an audit line, after which it may have changed something.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.out = Output(as_json=options["json"])
        self.has_audited = False

    @cached_property
    def stack(self) -> StackConnection:
        """The stack; its outputs are read on first use."""
        options = self._options
        local = find_local() if options["local"] else None
        return StackConnection(options["stack"], options["profile"], options["region"], local)

    def reconnect(self) -> None:
        """Let the next use of `stack` read the AWS configuration again."""
        self.__dict__.pop("stack", None)

    def confirm(self, question: str) -> None:
        """Ask the operator; return only if the answer is yes.

        Raises:
            CommandRefused: the answer is no, or there is no terminal and --yes was not given.
        """
        if self._options["yes"]:
            return
        if not sys.stdin.isatty():
            raise CommandRefused(
                f"{question} There is no terminal on which to answer: give --yes to confirm. Nothing was changed."
            )
        if not click.confirm(printable(question), err=True):
            raise CommandRefused("Nothing was changed.")


def current_context() -> CommandContext:
    """The context of the running command."""
    context: CommandContext = click.get_current_context().meta[_KEY]
    return context


def _options() -> list[click.Option]:
    def option(*names: str, **settings: Any) -> click.Option:
        return TyperOption(param_decls=list(names), expose_value=False, rich_help_panel=PANEL, **settings)

    return [
        option("--stack", default=DEFAULT_STACK, show_default=True, envvar="SLOTKEEPER_STACK", callback=_keep,
               help="Name of the stack."),
        option("--profile", callback=_keep, help="Profile of your AWS configuration, as in the AWS CLI."),
        option("--region", callback=_keep, help="AWS Region, as in the AWS CLI."),
        option("--local", is_flag=True, envvar="SLOTKEEPER_LOCAL", callback=_keep,
               help="Use the stack of make local-up instead of one in an account."),
        option("--json", is_flag=True, callback=_keep, help="Print the result as JSON."),
        option("--yes", "-y", is_flag=True, callback=_keep, help="Answer yes to every question."),
    ]  # fmt: skip


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    kept = context.meta.setdefault(f"{_KEY}.options", {})
    # An option given before the command applies, unless it is also given after the command.
    if parameter.name and context.get_parameter_source(parameter.name) != ParameterSource.DEFAULT:
        kept[parameter.name] = value
    else:
        kept.setdefault(parameter.name, value)


class _WithOptions(click.Command):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_options())


class StackGroup(_WithOptions, TyperGroup):
    """The root command, which also takes the common options."""


class StackCommand(_WithOptions, TyperCommand):
    """A command with the common options."""

    def invoke(self, context: click.Context) -> Any:
        """Make the context, then run the command."""
        context.meta[_KEY] = CommandContext(context.meta[f"{_KEY}.options"])
        return super().invoke(context)
