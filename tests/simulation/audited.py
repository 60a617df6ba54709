"""The records of a world as `slotkeeper audit` reads them: the real history reader, on the simulated AWS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from slotkeeper_cli.account import Account
from slotkeeper_cli.audit import history_reader
from slotkeeper_cli.audit.history_reader import Window, read_history
from slotkeeper_cli.audit.work_history import WorkHistory
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.stack_connection import StackConnection
from tests.simulation.aws.stepfunctions import WORKFLOW
from tests.simulation.frozen import freeze, thaw
from tests.simulation.slots_actors import ENDINGS
from tests.simulation.slots_state import NO_PROCESS, PROCESS
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.transcript import Question
from tests.simulation.workflow import BELLS, ROWS, SLOTS
from tests.simulation.worlds import BEGINNING, Choice

_OUTPUTS = {
    "SlotTableName": SLOTS,
    "RequestTableName": ROWS,
    "DispatchQueueUrl": BELLS,
    "EndingQueueUrl": ENDINGS,
    "WorkflowArn": WORKFLOW,
    "RequestRetentionDays": "30",
    "AuditLogGroupName": "audit",
}
_TOKENS = (("nextToken", "nextToken"), ("NextToken", "NextToken"), ("LastEvaluatedKey", "ExclusiveStartKey"))


class AuditedWorld:
    """A world, with a log of its operators' changes, and its account as a stack."""

    name = "simulated"
    outputs = _OUTPUTS
    parameters: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, world: SlotsWorld) -> None:
        self.world = world
        self.lines: list[dict[str, Any]] = []
        self._item = world._item(PROCESS)
        self._taken: Callable[[Choice], None] = world.take
        world.take = self._take  # type: ignore[method-assign]

    def _take(self, choice: Choice) -> None:
        self._taken(choice)
        before, after = self._item, self.world._item(PROCESS)
        if before is after:
            return
        self._item = after
        limits = [int(each["slot_limit"]["N"]) for each in (before, after)]
        if after is NO_PROCESS:
            self._log("process remove")
        elif before is NO_PROCESS:
            self._log("process add", limit=limits[1])
        elif limits[0] != limits[1]:
            self._log("process set-limit", before=limits[0], after=limits[1])
        elif before.get("paused") is not after.get("paused"):
            is_paused = after.get("paused", {"BOOL": False})["BOOL"]
            self._log("process pause" if is_paused else "process resume")

    def _log(self, action: str, **fields: Any) -> None:
        self.lines.append({"action": action, "at": iso(self.world.now), "by": "operator", "process": PROCESS, **fields})

    def client(self, service: str) -> Any:
        """A double of a boto3 client of the account."""
        return _Client(self, service)

    def history(self, patch: pytest.MonkeyPatch, later: float = 1.0) -> WorkHistory:
        """The history of the world until now, as it is read some seconds later."""
        now = self.world.now + later
        patch.setattr(history_reader.time, "time", lambda: now)
        return read_history(Account(cast(StackConnection, self)), Window(BEGINNING - 1, now))


class _Client:
    def __init__(self, audited: AuditedWorld, service: str) -> None:
        self._audited, self._service = audited, service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            if operation == "filter_log_events":
                lines = self._audited.lines
                return {"events": [{"timestamp": at, "message": json.dumps(each)} for at, each in enumerate(lines)]}
            parameters.pop("maxResults", None)
            world = self._audited.world
            question = Question(self._service, operation, freeze(parameters))
            question = question._replace(service=world.service_of(question))
            answer = super(SlotsWorld, world).perform(question)
            if answer.error:
                raise ClientError({"Error": {"Code": answer.error, "Message": "simulated"}}, operation)
            return thaw(answer.value)

        return call

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages(getattr(self, operation))


class _Pages:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def paginate(self, PaginationConfig: Any = None, **parameters: Any) -> Iterator[Any]:
        page = self._call(**parameters)
        yield page
        while following := {name: page[token] for token, name in _TOKENS if page.get(token)}:
            page = self._call(**parameters | following)
            yield page
