"""Redrives and discards requests that have failed or ended without a start: many at a time.

A redrive is one transaction for up to ten requests: it ends their rows, and adds those of the next attempts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from slotkeeper.next_step import next_step
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.returns import MAX_REDRIVES, NotRequeued, Requeued
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.bulk import Bulk, Chosen, Outcome, repeated
from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.failures import REDRIVABLE
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.request_finder import is_discarded
from slotkeeper_cli.requests import WITHOUT_CONTENT, state_of
from slotkeeper_cli.slot_control import SlotControl, add_command, name_of, no_process
from slotkeeper_cli.stack_connection import THREADS

MAX_ATTEMPTS = 1_000_000  # request.schema.json
# Of ten requests for each audit line, which may have 256 KB (CloudWatch Logs quotas, "Event size").
PARTS = 5 * THREADS
# Of a repeated command, which has succeeded.
BEFORE = "it was redriven before"
NOT_PUBLISHED = "its end is not published yet: try again in a minute"
# A `start_before` as in a request, and in seconds since the epoch; None: the request states none.
Deadline = tuple[str, float] | None


class NotRedrivable(ValueError):
    """It would be refused again; the text states why."""


def check_process(name: str, processes: Mapping[str, Process | MalformedProcess]) -> None:
    """Raise NotRedrivable if a process runs no request that is redriven."""
    match processes.get(name):
        case None:
            raise NotRedrivable(f"{no_process(name, processes)} Add it with: {add_command(name)}")
        case MalformedProcess():
            raise NotRedrivable(
                f"the item of process {name!r} is malformed, so it would wait. Repair it first: "
                f"{next_step('process repair', name)}"
            )
        case Process(target=target) if target == NO_TARGET:
            raise NotRedrivable(f"process {name} is for leases only: it runs no requests")


def check_row(row: RequestRow, start_before: str, now: float) -> Deadline:
    """The deadline of the next attempt of a request.

    Args:
        start_before: replaces that of a request which states one; empty: it stays, if it has not passed.
        now: seconds since the epoch.

    Raises:
        NotRedrivable: the request cannot be queued again.
    """
    if row.state not in REDRIVABLE:
        raise NotRedrivable(f"it is {state_of(row.state)}")
    if why := WITHOUT_CONTENT.get(row.code):
        raise NotRedrivable(why)
    if row.is_unpublished:
        raise NotRedrivable(NOT_PUBLISHED)
    if is_discarded(row):
        raise NotRedrivable("it was discarded: its content is removed")
    if row.attempt >= MAX_ATTEMPTS:
        raise NotRedrivable(f"it was attempt {row.attempt}, which is the maximum: submit it with a different id")
    if row.start_before is None:
        return None
    if start_before:
        return start_before, datetime.fromisoformat(start_before).timestamp()
    if row.state == "TOO_LATE" or now >= row.start_before:
        raise NotRedrivable("its start_before has passed: give a later one with --start-before")
    return iso(row.start_before), row.start_before


class RowChange:
    """A change of rows, as it is planned.

    Attributes:
        chosen: the requests to change, in the order in which they were sent.
        left: the others, with the reason.
        again: the executions of the next attempts, by those before them.
        bulk: changes the chosen ones.
    """

    bulk: Bulk

    def __init__(self, control: SlotControl, rows: Sequence[RequestRow], check: Callable[[RequestRow], object]) -> None:
        self._control = control
        self.chosen, self.left = list[Chosen](), list[Outcome]()
        self.again: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: row.sent):
            one = Chosen(row.process, row.execution, row.request_id)
            try:
                check(row)
                self.chosen.append(one)
            except NotRedrivable as error:
                self.left.append((one, str(error)))


class Redriving(RowChange):
    """Queues requests again, each as its next attempt."""

    def __init__(
        self, context: CommandContext, control: SlotControl, rows: Sequence[RequestRow], start_before: str
    ) -> None:
        self._now = time.time()
        self._deadlines: dict[str, Deadline] = {}
        processes = {name_of(one): one for one in control.processes.all()}

        def check(row: RequestRow) -> None:
            check_process(row.process, processes)
            self._deadlines[row.execution] = check_row(row, start_before, self._now)

        super().__init__(control, rows, check)
        self._order = {one.execution: at for at, one in enumerate(self.chosen)}
        self.bulk = Bulk(context.out, "failed redrive", "redriven", self._redrive, MAX_REDRIVES, PARTS, self._ring)

    def _redrive(self, process: str, part: Sequence[Chosen]) -> Iterator[Outcome]:
        # Parts are redriven at the same time. A millisecond between their places keeps them in order.
        now = self._now + self._order[part[0].execution] // MAX_REDRIVES / 1000
        by_deadline: dict[Deadline, list[Chosen]] = {}
        for one in part:
            by_deadline.setdefault(self._deadlines[one.execution], []).append(one)
        for deadline, ones in by_deadline.items():
            names = [one.execution for one in ones]
            outcomes = repeated(partial(self._control.requeues.redrive, process, names, now, deadline))
            for one in ones:
                match outcomes[one.execution]:
                    case Requeued(execution=again):
                        self.again[one.execution] = again
                        yield one, ""
                    case NotRequeued(reason=reason, state=state):
                        yield one, BEFORE if state == "REDRIVEN" else reason

    def _ring(self, process: str, _: list[str]) -> None:
        self._control.doorbell.ring(Bell(process))


class Discarding(RowChange):
    """Removes failures from their list, with their contents."""

    def __init__(self, context: CommandContext, control: SlotControl, rows: Sequence[RequestRow]) -> None:
        super().__init__(control, rows, _check_failure)
        self.bulk = Bulk(context.out, "failed discard", "discarded", self._discard, MAX_REDRIVES, PARTS)

    def _discard(self, process: str, part: Sequence[Chosen]) -> Iterator[Outcome]:
        for one in part:
            is_done = repeated(partial(self._control.requeues.discard, process, one.execution))
            yield one, "" if is_done else "it has changed meanwhile"


def _check_failure(row: RequestRow) -> None:
    if row.is_unpublished:
        raise NotRedrivable(NOT_PUBLISHED)
    if row.failed is None:
        raise NotRedrivable(f"it is {state_of(row.state)}, and in no list of failures")
