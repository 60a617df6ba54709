"""What a request gives its target: arguments to a Glue job, an input to a state machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import InvalidRequest, Request, check_numbers
from slotkeeper.slots.targets import NO_TARGET, is_state_machine
from slotkeeper_cli.formatting import one_line
from slotkeeper_cli.request_sender import InvalidRequests
from slotkeeper_cli.target_checks import target_text


def read_input(text: str) -> dict[str, Any]:
    """The input that an option contains: JSON, or @ and the name of a file with JSON.

    Raises:
        typer.BadParameter: it is not a JSON object, the file cannot be read, or the workflow would change a number.
    """
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        value = json.loads(text)
        check_numbers(text)
    except InvalidRequest as error:
        raise typer.BadParameter(f"--input: {error}. Nothing was sent.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f'--input cannot be read: {error}. Expected is a JSON object, such as \'{{"day": "2026-11-21"}}\', or '
            "@FILE. Nothing was sent."
        ) from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"--input must be a JSON object, got {one_line(text)}. Nothing was sent.")
    return value


def refuse_wrong_kind(known: Mapping[str, Process], requests: Sequence[Request]) -> None:
    """Refuse arguments for a state machine, an input for a Glue job, and any request for a process without a target.

    Args:
        known: the processes that exist, by name.

    Raises:
        InvalidRequests: the text names each of these requests.
    """
    errors = []
    for one in requests:
        target = known[one.process].target if one.process in known else ""
        if target == NO_TARGET:
            errors.append(f"{one.request_id}: process {one.process} is for leases only, it runs no requests")
        elif is_state_machine(target) and one.arguments:
            errors.append(f"{one.request_id}: {target_text(target)} takes an input (--input), not arguments")
        elif target and not is_state_machine(target) and one.input is not None:
            errors.append(f"{one.request_id}: {target_text(target)} takes arguments (--arg), not an input")
    if errors:
        text = "requests do not fit the target of their process."
        raise InvalidRequests(text, *errors, "Nothing was sent.")
