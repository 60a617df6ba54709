"""The option --key of commands: the key of a request, or that of the requests to choose."""

from __future__ import annotations

from typing import Annotated

import typer

from slotkeeper.slots.request import check_key

KeyFilter = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only requests of this key; --key '' for those without one.")
]


def checked_key(key: str | None) -> str:
    """A key that is given as an option; "" for none. Raises typer.BadParameter if no request can have it."""
    if key is None:
        return ""
    try:
        check_key(key)
    except ValueError as error:
        raise typer.BadParameter(f"--key {error}") from error
    return key
