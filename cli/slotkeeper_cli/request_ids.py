"""The caller's request ids of executions. An execution's name is a hash; its input contains the id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper_cli.requests import fields_in
from slotkeeper_cli.stack_connection import in_parallel

ID_HELP = (
    "Id of the request, or of its message if it was sent without one. The name of an execution and the id of a "
    "dead-letter message are accepted too."
)
# The argument of commands on a request.
RequestId = Annotated[str, typer.Argument(metavar="ID", help=ID_HELP)]

# Executions that one search describes. The bucket of DescribeExecution has 250 calls in the smallest Regions, and the
# functions use it too (docs/limits.md).
MAX_DESCRIBED = 100
# Attempts of a request id whose execution names are compared.
_MAX_ATTEMPTS = 1000
# The same for a request with a task token. Only a returned request is sent again with its token.
_MAX_RETURNS = 20


def request_id_of(execution_input: str) -> str | None:
    """The request id in an execution's input; None if the execution was started manually without one."""
    given = fields_in(execution_input).get("request_id")
    return str(given) if given else None


class RequestIds:
    """Finds the request ids of executions, and remembers them: an execution's input does not change."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._known: dict[str, str | None] = {}

    def remember(self, execution: Execution) -> None:
        """Remember the id of an execution that the caller has described."""
        self._known[execution.name] = request_id_of(execution.input)

    def find(self, executions: Sequence[str]) -> dict[str, str]:
        """The ids of these executions, by execution name, without those that are not known.

        Describes the first MAX_DESCRIBED executions whose ids are not known yet. The execution of a reservation may not
        have started.
        """
        unknown = [name for name in executions if name not in self._known][:MAX_DESCRIBED]
        for execution in in_parallel(self._workflow.describe, unknown):
            if execution is not None:
                self.remember(execution)
        return {name: found for name in executions if (found := self._known.get(name))}


def holders_of(processes: Iterable[Process], given: str) -> list[tuple[Process, str]]:
    """The holders with a request id or an execution name, as pairs of process and execution. Makes no call."""
    return [
        (process, name)
        for process in processes
        for name in dict.fromkeys((given, *_names(process, given)))
        if name in process.holders
    ]


def callers_of(process: Process, request_id: str) -> set[str]:
    """The callers that wait for a request of this id which holds a slot, as execution names contain them."""
    callers = {caller_of(holder.task_token) for holder in process.holders.values() if holder.task_token}
    names = {caller: _names_with(process, request_id, _MAX_RETURNS, caller) for caller in callers}
    return {caller for caller, of_caller in names.items() if not process.holders.keys().isdisjoint(of_caller)}


def _names(process: Process, request_id: str) -> Iterator[str]:
    if process.holders:
        yield from _names_with(process, request_id, _MAX_ATTEMPTS)
        for caller in callers_of(process, request_id):
            yield from _names_with(process, request_id, _MAX_RETURNS, caller)


def _names_with(process: Process, request_id: str, attempts: int, caller: str = "") -> list[str]:
    return [execution_name(process.name, request_id, number, caller) for number in range(1, attempts + 1)]
