"""Starts the console: its address, its pages, and the browser."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nicegui import app, ui

from slotkeeper_cli.output import Output
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.web.access import Access, Entrance, leading_to
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.frame import Console
from slotkeeper_cli.web.shared import SharedReadings

HOST = "127.0.0.1"
_BADGES = 30.0  # seconds between two readings for the numbers in the navigation of each page


def serve(stack: StackConnection, port: int, *, writes: bool, shows: bool, out: Output) -> None:
    """Serve the console of a stack until Ctrl-C.

    Args:
        writes: whether its actions may change the stack.
        shows: open it in the browser. An address that opens the console for its first reader is then printed only on a
            terminal, since other output may be a log.
    """
    from slotkeeper_cli.web import pages  # noqa: PLC0415 - the pages and the answers are above this module
    from slotkeeper_cli.web.reading import PageReadings, badges  # noqa: PLC0415

    prints = not shows or sys.stderr.isatty()
    until_entered = ExitStack()

    def entered() -> None:
        until_entered.close()
        if prints:
            out.note(f"A browser has opened the console. To open it in another one: {entrance.address}")

    def show() -> None:
        _await_port(port)
        kind = "can change the stack" if writes else "read-only; --write lets it change the stack"
        out.console.print(f"Console ({kind}): http://{HOST}:{port}")
        if prints:
            out.note(f"This address opens it once, in one browser: {entrance.address}")
        if shows and not webbrowser.open(until_entered.enter_context(page_leading_to(entrance.address))) and not prints:
            out.note("No browser could be opened. With --no-browser it prints an address that opens the console once.")

    entrance = Entrance(f"http://{HOST}:{port}", entered)
    app.add_middleware(Access, entrance=entrance, port=port)
    readings = PageReadings(stack)
    where = f"{stack.name} in {stack.region}" + (" (local)" if stack.is_local else "")
    numbers = replace(readings.overview(), every=_BADGES)
    console = Console(where, Actions(stack, writes), SharedReadings(), numbers, badges)

    def read_again() -> None:
        readings.account.forget()
        console.read_again()

    console.actions.changed = read_again
    pages.declare(console, readings)
    threading.Thread(target=show, daemon=True).start()
    with until_entered:
        ui.run(
            host=HOST,
            port=port,
            title="Slotkeeper",
            dark=None,
            language="en-US",
            reload=False,
            show=False,
            show_welcome_message=False,
            reconnect_timeout=30,
            access_log=False,
            uvicorn_logging_level="critical",  # a browser that leaves while a page loads is no error
        )


@contextmanager
def page_leading_to(address: str) -> Iterator[str]:
    """The address of a file that takes the browser to another address, and that only its owner can read.

    A browser is started with an address as its argument, and every user of the machine can read arguments. The file is
    in the home folder, since a browser that is a snap reads neither hidden files nor /tmp (Snapcraft documentation,
    "The home interface").
    """
    home = os.environ.get("HOME", "")
    with TemporaryDirectory(prefix="slotkeeper-web-", dir=home if os.access(home, os.W_OK) else None) as folder:
        page = Path(folder) / "open.html"
        page.touch(0o600)
        page.write_text(leading_to(address))
        yield page.as_uri()


def _await_port(port: int) -> None:
    """Wait until the console answers."""
    while True:
        try:
            socket.create_connection((HOST, port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
