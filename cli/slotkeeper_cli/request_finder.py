"""Finds a request: the rows of its attempts, and the work of the last one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.holders import SlotRelease, estimate, target_of
from slotkeeper_cli.target_checks import ShownWork, target_in
from slotkeeper_cli.unread import Search

if TYPE_CHECKING:
    from slotkeeper_cli.slot_control import SlotControl
    from slotkeeper_cli.stack_connection import StackConnection

ID_HELP = "Id of the request, or of its message if it was sent without one. The name of an execution is accepted too."
# A request that was sent with the id of another has a row whose name ends with its message id (intake.py).
_EXECUTION = re.compile(r"(?P<process>[A-Za-z0-9_-]{1,47})-[0-9a-f]{32}(#.+)?")


# Rows of the attempts of one request, in order. Requests with the same id, but different callers or without one, are
# different requests.
Attempts = list[RequestRow]


class RequestFinder:
    """Finds requests on a stack.

    Attributes:
        search: what could not be read.
    """

    def __init__(self, control: SlotControl) -> None:
        self._control = control
        self.search = Search()

    def find(self, given: str, only: str | None = None) -> list[Attempts]:
        """The request in each process that has it, also once for each caller: two calls, of an execution's name three.

        Args:
            given: the id of the request, or the name of an execution.
            only: the process to search; None: all, also those that do not exist any more.

        Raises:
            MalformedRequestRow: of the execution.
        """
        named = _EXECUTION.fullmatch(given)
        row = self._control.rows.row(named["process"], given) if named else None
        if row is None:
            return _grouped(self._rows(given, only))
        found = _grouped(self._rows(row.request_id, row.process))
        # By name, since the row may have changed between the two reads.
        return [one for one in found if any(each.execution == row.execution for each in one)]

    def _rows(self, request_id: str, only: str | None) -> list[RequestRow]:
        """The rows of a request, read consistently.

        The index may lack the newest one of a process that the caller or an older row names. Its execution's name is
        known, unless it has a caller.
        """
        indexed = self._control.row_search.attempts(request_id)
        last = {only: 0} if only else {}
        names = []
        for process, execution, attempt in self.search.rows(indexed, "requests with the id"):
            if only in (None, process):
                names.append((process, execution))
                last[process] = max(attempt, last.get(process, 0))
        names += [(process, execution_name(process, request_id, number + 1)) for process, number in last.items()]
        return self.search.rows(self._control.row_search.named(dict.fromkeys(names)), "requests with the id")

    def only(self, given: str, only: str | None, wanted: Callable[[RequestRow], bool]) -> Attempts | None:
        """The one request with an id whose last attempt is wanted; if none is, any request with the id.

        Raises:
            CommandRefused: several are wanted.
        """
        found = self.find(given, only)
        chosen = [one for one in found if wanted(one[-1])] or found[:1]
        if len(chosen) > 1:
            names = ", ".join(f"{one[-1].execution} ({one[-1].process})" for one in chosen)
            raise CommandRefused(
                f"several requests have the id {given}: give --process, or the name of an execution. They are: "
                f"{names}. Nothing was changed."
            )
        return chosen[0] if chosen else None


def _grouped(rows: Sequence[RequestRow]) -> list[Attempts]:
    """The requests that rows belong to.

    All attempts of one message are one request, also if only the first has a caller, and all without a caller are.
    """
    plain = (row for row in rows if row.execution == execution_name(row.process, row.request_id, row.attempt))
    without_caller = {(row.process, row.message_id) for row in plain}
    groups: dict[tuple[str, str], list[RequestRow]] = {}
    for row in rows:
        is_of_plain = (row.process, row.message_id) in without_caller
        key = row.execution if "#" in row.execution else "" if is_of_plain else row.message_id
        groups.setdefault((row.process, key), []).append(row)
    return [sorted(of, key=lambda row: row.attempt) for _, of in sorted(groups.items())]


@dataclass(frozen=True)
class Run:
    """The slot, execution and work of a request that has started.

    Attributes:
        holder: None: it holds no slot.
        execution: None: Step Functions knows none of its name.
        work: its Glue run or child execution; None if none was found.
        release: when its slot will be free, if its execution has ended and it still holds one.
        output: of a child execution that has succeeded.
        is_read: whether the process's item could be read; otherwise it is not known whether it holds a slot.
    """

    target: str = ""
    holder: Holder | None = None
    execution: Execution | None = None
    work: ShownWork | None = None
    release: SlotRelease | None = None
    output: dict[str, str] = field(default_factory=dict)
    is_read: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON shows it."""
        data: dict[str, Any] = {}
        if self.holder is not None:
            data |= {"slot": self.holder.state, "held_since": iso(self.holder.since), "weight": self.holder.weight}
        if self.execution is not None:
            data["status"] = self.execution.status
        if self.target:
            data |= {"target": self.target, kind_of(self.target).work_key: self.work}
        return data | (self.release.as_dict() if self.release else {}) | self.output


def read_run(
    stack: StackConnection, control: SlotControl, process: Process | MalformedProcess | None, row: RequestRow
) -> Run:
    """Read what runs of a request.

    Args:
        process: as it was read before; None if it does not exist.
    """
    execution = control.workflow.describe(row.execution)
    if isinstance(process, MalformedProcess):
        return Run(execution=execution, is_read=False)
    holder = process.holders.get(row.execution) if process else None
    if process and holder and execution and execution.is_closed:
        # It may have released its slot between the two reads.
        process = control.process(process.name)
        holder = process.holders.get(row.execution)
    if process is None or execution is None or process.target == NO_TARGET:
        return Run("", holder, execution)
    target = target_of(process, holder) if holder else process.target
    found = target_in(stack, target)
    work = found.work(row.execution, holder.since if holder else execution.started_at or 0.0)
    release = None
    if holder and execution.is_closed:
        ended = max(execution.stopped_at or 0.0, holder.since)
        release = estimate(stack.parameters, ended, target, work, process.settle_seconds)
    output = found.output(row.execution) if work and row.state == "SUCCEEDED" else {}
    return Run(target, holder, execution, work, release, output)
