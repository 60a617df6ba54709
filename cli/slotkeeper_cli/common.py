"""What every command has: the options that say which stack, and what it works with."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import click
from click.core import ParameterSource
from typer.core import TyperCommand, TyperGroup, TyperOption

from slotkeeper_cli.errors import Refused
from slotkeeper_cli.output import Output
from slotkeeper_cli.stack import DEFAULT_STACK, Stack, find_local

PANEL = "Which stack, and how it is told"
_KEY = "slotkeeper_cli"


class Cli:
    """What a command works with, made from its common options. `has_audited`: it has begun to change something."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.out = Output(as_json=options["json"])
        self.has_audited = False

    @cached_property
    def stack(self) -> Stack:
        """The stack, looked up when it is first asked for."""
        options = self._options
        local = find_local() if options["local"] else None
        return Stack(options["stack"], options["profile"], options["region"], local)

    def confirm(self, question: str) -> None:
        """Asks before something that cannot be taken back; returns only if the answer was yes.

        Raises:
            Refused: the answer was no, or nobody is there to answer and --yes was not given.
        """
        if self._options["yes"]:
            return
        if not sys.stdin.isatty():
            raise Refused(f"{question} Nobody can answer here; give --yes to say so beforehand. Nothing was changed.")
        if not click.confirm(question, err=True):
            raise Refused("Nothing was changed.")


def cli() -> Cli:
    """What the running command works with."""
    found: Cli = click.get_current_context().meta[_KEY]
    return found


def _options() -> list[click.Option]:
    def option(*names: str, **settings: Any) -> click.Option:
        return TyperOption(param_decls=list(names), expose_value=False, rich_help_panel=PANEL, **settings)

    return [
        option("--stack", default=DEFAULT_STACK, show_default=True, envvar="SLOTKEEPER_STACK", callback=_keep,
               help="The stack's name."),
        option("--profile", callback=_keep, help="The profile of your AWS configuration, as for the AWS CLI."),
        option("--region", callback=_keep, help="The region, as for the AWS CLI."),
        option("--local", is_flag=True, envvar="SLOTKEEPER_LOCAL", callback=_keep,
               help="The stack of make local-up instead of one in an account."),
        option("--json", is_flag=True, callback=_keep, help="Print the result as JSON."),
        option("--yes", "-y", is_flag=True, callback=_keep, help="Answer yes to what would be asked."),
    ]  # fmt: skip


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    kept = context.meta.setdefault(f"{_KEY}.options", {})
    # What was said before the command holds, unless the command says it again.
    if parameter.name and context.get_parameter_source(parameter.name) != ParameterSource.DEFAULT:
        kept[parameter.name] = value
    else:
        kept.setdefault(parameter.name, value)


class StackGroup(TyperGroup):
    """The command line as a whole: the common options may also stand before the command."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_options())


class StackCommand(TyperCommand):
    """A command with the common options, which may stand anywhere on its line."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_options())

    def invoke(self, context: click.Context) -> Any:
        """Runs it, with `cli()` in place."""
        context.meta[_KEY] = Cli(context.meta[f"{_KEY}.options"])
        return super().invoke(context)
