"""`slotkeeper web`: a console in the browser."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from slotkeeper_cli.context import current_context
from slotkeeper_cli.entry import how_to_install
from slotkeeper_cli.errors import CommandFailed, CommandRefused

HELP = """Open a console of the stack in the browser.

It shows what holds slots, what waits and why, what failed and what to do, and updates by itself. It answers on
127.0.0.1 alone, and only to the browser that it has opened, or that has used an address that it printed: each opens the
console once. It changes nothing unless you give --write; then each change is a command that the page shows before it
runs. Ctrl-C ends it.
"""


def web(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port on 127.0.0.1; 0 takes one that is free.")
    ] = 0,
    write: Annotated[bool, typer.Option("--write", help="Let the pages change the stack.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the browser, or only print the address.")] = True,
) -> None:
    """Serve the console. `HELP` is the text of --help."""
    context = current_context()
    try:
        from slotkeeper_cli.web import server  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise CommandFailed(
            f"the console needs NiceGUI, which is not installed ({error}): {how_to_install('web')}"
        ) from error
    context.stack.description  # noqa: B018 - a wrong stack is an error of the command, not of each page
    try:
        with socket.create_server((server.HOST, port)) as free:
            chosen = int(free.getsockname()[1])
    except OSError as error:
        raise CommandRefused(f"port {port} cannot be used: {error.strerror}. Give another --port") from error
    server.serve(context.stack, chosen, writes=write, shows=browser, out=context.out)
