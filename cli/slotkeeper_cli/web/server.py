"""Starts the console: its address, its pages, and the browser."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import app, ui

from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.web import failure_pages, history_page, request_page, slot_pages
from slotkeeper_cli.web.access import TOKEN_FIELD, Access, new_token
from slotkeeper_cli.web.actions import Actions
from slotkeeper_cli.web.reading import StackReader

HOST = "127.0.0.1"


def serve(stack: StackConnection, port: int, *, writes: bool, shows: bool, ready: Callable[[str], None]) -> None:
    """Serve the console of a stack until Ctrl-C.

    Args:
        writes: whether its actions may change the stack.
        shows: open it in the browser.
        ready: receives a line with its address once it answers.
    """
    token = new_token()
    app.add_middleware(Access, token=token, port=port)
    reader = StackReader(stack)
    actions = Actions(stack, writes, reader.forget)
    slot_pages.declare(reader, actions)
    history_page.declare(reader, actions)
    request_page.declare(reader, actions)
    failure_pages.declare(reader, actions)
    address = f"/?{TOKEN_FIELD}={token}"
    kind = "can change the stack" if writes else "read-only; --write lets it change the stack"
    app.on_startup(lambda: ready(f"Console ({kind}): http://{HOST}:{port}{address}"))
    ui.run(
        host=HOST,
        port=port,
        title="Slotkeeper",
        dark=None,
        reload=False,
        show=address if shows else False,
        show_welcome_message=False,
        reconnect_timeout=30,
        access_log=False,
        uvicorn_logging_level="critical",  # a browser that leaves while a page loads is no error
    )
