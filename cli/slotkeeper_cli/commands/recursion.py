"""`slotkeeper recursion check`: whether Lambda ends loops where it should, and lets the worker's be."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper_cli.common import StackCommand, cli
from slotkeeper_cli.errors import ProblemsFound
from slotkeeper_cli.output import table
from slotkeeper_cli.recursion import WHY, Setting, settings
from slotkeeper_cli.words import count

recursion = typer.Typer(help="Lambda's recursive loop detection.", no_args_is_help=True)


def check() -> None:
    """Compare each function's deployed setting with the template that the stack was deployed with; 5 if one differs."""
    here = cli()
    found = settings(here.stack)
    different = [one for one in found if one.differs]
    data = {
        "functions": [
            {"function": one.function, "name": one.name, "deployed": one.deployed, "template": one.template}
            for one in found
        ],
        "different": [one.function for one in different],
    }
    here.out.result(data, lambda console: _render(console, found))
    if different:
        names = ", ".join(one.function for one in different)
        raise ProblemsFound(
            f"{count(len(different), 'function')} not set as the template says: {names}. Somebody has changed it by "
            "hand; aws lambda put-function-recursion-config, or a deployment that changes the function, sets it again"
        )


def _render(console: Console, found: list[Setting]) -> None:
    made = table("function", "deployed", "template", "because")
    for one in found:
        deployed = Text(one.deployed, style="red" if one.differs else "")
        made.add_row(one.function, deployed, one.template, WHY.get(one.template, ""))
    console.print(made)


recursion.command("check", cls=StackCommand)(check)
