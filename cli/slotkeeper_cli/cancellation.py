"""Cancels queued requests: a transaction for up to 50 of them; then their ends are published, and a dispatch follows.

Cancelled means never started: a request that has a slot is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.request_table import MAX_LEAVES, Leaving
from slotkeeper_cli.bulk import Bulk, Chosen, Outcome, repeated
from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import in_parallel


class Cancelling:
    """Cancels requests of a stack."""

    def __init__(self, context: CommandContext, control: SlotControl) -> None:
        self._control, self._by = control, context.stack.caller
        self.bulk = Bulk(context.out, "request cancel", "cancelled", self._cancel, MAX_LEAVES, after=self._publish)

    def _cancel(self, process: str, batch: Sequence[Chosen]) -> Iterator[Outcome]:
        leavings = [Leaving(one.execution, "CANCELLED", "Cancelled", f"cancelled by {self._by}") for one in batch]
        left = repeated(lambda: self._control.requests.leave(process, leavings, time.time()))
        ended = {each.execution for each in left}
        yield from ((one, "") for one in batch if one.execution in ended)
        rest = [one for one in batch if one.execution not in ended]
        yield from zip(rest, in_parallel(self._why, rest), strict=True)

    def _why(self, one: Chosen) -> str:
        """Why a request was not cancelled; empty if it is cancelled."""
        row = self._control.row_search.row(one.process, one.execution)
        if row is None:
            return "it has no row any more"
        if row.state == "STARTED":
            return "it runs: give --stop to stop it"
        if row.state != "QUEUED":
            return "" if row.state == "CANCELLED" else f"it has ended: {state_of(row.state)}"
        try:
            process = self._control.slots.read(one.process)
        except MalformedProcess as error:
            return f"the item of its process is malformed: {error}"
        if process is None:
            return "its process does not exist: the next dispatch rejects it"
        has_slot = one.execution in process.holders
        return "it has a slot, and starts: to stop it, give --stop in some seconds" if has_slot else "it has changed"

    def _publish(self, process: str, ended: list[str]) -> None:
        self._control.ending_queue.publish(process, ended)
        self._control.doorbell.ring(Bell(process))
