"""Names that the shell completes, of the stack that the options before them select.

A call that fails, as without network, completes nothing and prints nothing, since the operator is typing. For the same
reason no question, such as for the code of an MFA device, reaches the terminal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from slotkeeper_cli.context import options_of, stack_of

if TYPE_CHECKING:
    from slotkeeper_cli.stack_connection import StackConnection

_PATIENCE = 3.0  # seconds after which the shell gets no names


class _TooLate(BaseException):
    """The time has passed. It is no Exception, for which boto3 would repeat the call."""


def process_names(context: typer.Context, incomplete: str) -> list[str]:
    """The processes, also those whose items are malformed (one Scan)."""
    return _names(context, incomplete, _processes)


def request_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of queued requests: of the process that --process names, or of all (one Scan, and a Query for each)."""
    only = context.params.get("process")

    def ids(stack: StackConnection) -> Iterable[str]:
        from slotkeeper_cli.slot_control import SlotControl  # noqa: PLC0415 - here and below: a key press imports what it needs

        rows = SlotControl(stack).rows
        for name in [only] if only else _processes(stack):
            yield from (row.request_id for row in rows.queue(name, max_pages=1).rows)

    return _names(context, incomplete, ids)


def downstream_names(context: typer.Context, incomplete: str) -> list[str]:
    """The downstreams that DownstreamTable or the retry policy has."""

    def names(stack: StackConnection) -> Iterable[str]:
        from slotkeeper_cli.retries import DownstreamControl  # noqa: PLC0415

        return DownstreamControl(stack).healths

    return _names(context, incomplete, names)


def _processes(stack: StackConnection) -> list[str]:
    from slotkeeper_cli.slot_control import SlotControl, name_of  # noqa: PLC0415

    return [name_of(one) for one in SlotControl(stack).processes.all()]


# The argument of commands on one process.
ProcessName = Annotated[
    str, typer.Argument(metavar="PROCESS", help="Name of the process.", autocompletion=process_names)
]


def _names(context: typer.Context, incomplete: str, read: Callable[[StackConnection], Iterable[str]]) -> list[str]:
    _leave_the_terminal()
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    try:
        names = list(read(stack_of(options_of(context))))
    except (Exception, _TooLate):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return sorted({name for name in names if name and name.startswith(incomplete)})


def _leave_the_terminal() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 2):
        os.dup2(nothing, stream)
    # A question opens /dev/tty, which a new session does not have. A shell starts the command in its own process
    # group; the leader of one could not leave.
    with suppress(PermissionError):
        os.setsid()


def _stop(*_: Any) -> NoReturn:
    raise _TooLate
