"""`slotkeeper request`: submit, show and cancel requests."""

import typer

from slotkeeper_cli.commands.cancel_request import cancel
from slotkeeper_cli.commands.explain import HELP, explain
from slotkeeper_cli.commands.submit import submit
from slotkeeper_cli.context import StackCommand

app = typer.Typer(help="Submit, show and cancel requests.", no_args_is_help=True)

app.command("submit", cls=StackCommand)(submit)
app.command("show", cls=StackCommand, help=HELP)(explain)
app.command("cancel", cls=StackCommand)(cancel)
