"""A world of slots that `slotkeeper audit` judges: through the real history reader, on the simulated AWS.

The world's own checks know what is true. So the audit may not condemn what they accept, at any time; and a history into
which a violation is put may not hold. Either is a violation of "AUDIT".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from botocore.exceptions import ClientError

from slotkeeper.slots.process import read_process
from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit import history_reader, judge
from slotkeeper_cli.audit.check_result import Result
from slotkeeper_cli.audit.history_reader import read_history
from slotkeeper_cli.audit.work_history import (
    SET_KEY_LIMIT,
    Attempt,
    AuditBounds,
    KeyLimits,
    WorkHistory,
    WorkInterval,
    limit_steps,
)
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.stack_connection import StackConnection
from tests.simulation import random_slots
from tests.simulation.aws.stepfunctions import WORKFLOW
from tests.simulation.frozen import freeze, thaw
from tests.simulation.slots_actors import ENDINGS
from tests.simulation.slots_state import NO_PROCESS, PROCESS, Plan
from tests.simulation.slots_world import FORBIDDEN, OUTAGE_SECONDS, SlotsWorld
from tests.simulation.transcript import Question, pages
from tests.simulation.workflow import BELLS, ROWS, SLOTS
from tests.simulation.worlds import BEGINNING, Choice, Violation, World

_OUTPUTS = {
    "SlotTableName": SLOTS,
    "RequestTableName": ROWS,
    "DispatchQueueUrl": BELLS,
    "EndingQueueUrl": ENDINGS,
    "WorkflowArn": WORKFLOW,
    "RequestRetentionDays": "30",
    "AuditLogGroupName": "audit",
}
# Faults of a schedule delay what the bounds are about: an outage, and messages that come again.
_DISTURBED = 4 * OUTAGE_SECONDS
_LATER = 3 * _DISTURBED  # seconds after which nothing is delayed by a fault


def random_world(random: Random) -> AuditedWorld:
    """A random world of jobs, children, keys or rates. No other workflow starts an execution of a child's name."""
    of = random_slots
    draws = (of.random_world, of.random_world_of_targets, of.random_world_with_rate, of.random_world_of_keys)
    plan = replace(random.choice(draws)(random).plan, namesakes=0)
    return AuditedWorld(plan, frozenset(random.sample(range(1, 300), 2)))


class AuditedWorld(SlotsWorld):
    """A world, with the lines that its operators' commands write to the audit log.

    Args:
        audited_at: the numbers of the steps after which it is audited, next to its end.
    """

    name = "simulated"
    outputs = _OUTPUTS
    parameters: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, plan: Plan, audited_at: frozenset[int]) -> None:
        super().__init__(plan)
        self.lines: list[dict[str, Any]] = []
        self.results: list[tuple[str, str, Result]] = []  # of audits: the violation put in, the check
        self._audited_at, self._steps = audited_at, 0

    def take(self, choice: Choice) -> None:
        before = self._item(PROCESS)
        super().take(choice)
        self._log_change(before, self._item(PROCESS))
        self._steps += 1
        if self._steps in self._audited_at:
            self._audit(self.history(1))

    def check_end(self) -> None:
        super().check_end()
        self._audit(self.history(1))
        later = self.history(_LATER)
        self._audit(later)
        for what, check, made in wrong_histories(later):
            (result,) = (each.result for each in judge(made) if each.id == check)
            self.results.append((what, check, result))
            if result is Result.HOLDS:
                raise Violation("AUDIT", f"{check} holds although there is {what}")

    def _audit(self, history: WorkHistory) -> None:
        for each in judge(history):
            self.results.append(("", each.id, each.result))
            if each.result is Result.FAILS and not (each.id == "freed" and "reads" in self.denied):
                raise Violation("AUDIT", f"{each.id} fails: {each.examples}")

    def history(self, later: float) -> WorkHistory:
        """The history of the world until now, as it is read some seconds later."""
        now = self.now + later
        with patch.object(history_reader, "time", SimpleNamespace(time=lambda: now)):
            read = read_history(Account(cast(StackConnection, self)), BEGINNING - 60, now)
        if not self.faults and self.disturbed_at == BEGINNING:
            return read
        longer = (read.bounds.dead_holder, read.bounds.intake, read.bounds.free_slot)
        dead_holder, intake, free_slot = (each + _DISTURBED for each in longer)
        return replace(read, bounds=AuditBounds(dead_holder, read.bounds.reservation, intake, free_slot))

    def _log_change(self, before: Any, after: Any) -> None:
        if before is after:
            return
        limits = [int(each["slot_limit"]["N"]) for each in (before, after)]
        if after is NO_PROCESS:
            self._write("process remove")
        elif before is NO_PROCESS:
            self._write("process add", limit=limits[1])
        elif limits[0] != limits[1]:
            self._write("process set-limit", before=limits[0], after=limits[1])
        elif (was := read_process(thaw(before))) and (now := read_process(thaw(after))).key_limit != was.key_limit:
            self._write(SET_KEY_LIMIT, key=None, before=was.key_limit, after=now.key_limit)
        elif changed := dict(was.key_limits.items() ^ now.key_limits.items()):
            (key,) = changed
            self._write(SET_KEY_LIMIT, key=key, before=was.key_limits.get(key), after=now.key_limits.get(key))
        elif before.get("paused") is not after.get("paused"):
            is_paused = after.get("paused", {"BOOL": False})["BOOL"]
            self._write("process pause" if is_paused else "process resume")

    def _write(self, action: str, **fields: Any) -> None:
        self.lines.append({"action": action, "at": iso(self.now), "by": "operator", "process": PROCESS, **fields})

    # As a StackConnection ------------------------------------------------------------------------------------------

    def client(self, service: str) -> Any:
        """A double of a boto3 client of the account."""
        return _Client(self, service)


class _Client:
    def __init__(self, world: AuditedWorld, service: str) -> None:
        self._world, self._service = world, service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            if operation == "filter_log_events":
                lines = enumerate(self._world.lines)
                return {"events": [{"timestamp": at, "message": json.dumps(each)} for at, each in lines]}
            for unused in ("PaginationConfig", "maxResults"):
                parameters.pop(unused, None)
            if parameters.get("stateMachineArn") == FORBIDDEN:  # the world has one set of children
                return {"executions": []}
            question = Question(self._service, operation, freeze(parameters))
            answer = World.perform(self._world, question._replace(service=self._world.service_of(question)))
            if answer.error:
                raise ClientError({"Error": {"Code": answer.error, "Message": "simulated"}}, operation)
            return thaw(answer.value)

        return call

    def get_paginator(self, operation: str) -> Any:
        call = getattr(self, operation)
        return SimpleNamespace(paginate=lambda **parameters: pages(call, parameters))


# ---------------------------------------------------------------------------------------------------- wrong histories


def wrong_histories(history: WorkHistory) -> Iterator[tuple[str, str, WorkHistory]]:
    """Histories with one violation each: its name, the check that must see it, and the history."""
    succeeded = [each for each in history.work if each.succeeded and each.ended and each.ended > each.started + 2]
    for ran in succeeded[:1]:
        yield "more at work than the limit", "limit", _with_copies(history, ran)
        row, most = history.row(ran.execution), limit_steps(history, ran.process).most(0, history.now) or 0
        of_key = KeyLimits(history, ran.process).of(row.key).most(0, history.now) if row else None
        if of_key is not None and of_key <= most:
            yield "more of a key than its limit", "keys", _with_copies(history, ran)
        again = replace(ran, started=(ran.ended or 0.0) + 5, ended=(ran.ended or 0.0) + 9)
        yield "a second run of a success", "once", replace(history, work=[*history.work, again])
    for attempt in [each for each in history.attempts if each.is_closed and each.row and not each.redriven][:1]:
        rows = [each for each in history.rows if each.execution != attempt.execution]
        attempts = [replace(each, row=None) if each is attempt else each for each in history.attempts]
        yield "an execution without its row", "accounted", replace(history, rows=rows, attempts=attempts)
        others = [each for each in history.attempts if each is not attempt]
        if attempt.status == "SUCCEEDED":
            yield "a row without its execution", "accounted", replace(history, attempts=others)
    for row in [each for each in history.rows if each.state in ("RETURNED", "REDRIVEN")][:1]:
        following = (row.request_id, row.attempt + 1)
        rows = [each for each in history.rows if (each.request_id, each.attempt) != following and each.attempt]
        yield "a returned request that vanished", "accounted", replace(history, rows=rows)
    yield from _waiting(history)


def _with_copies(history: WorkHistory, ran: WorkInterval) -> WorkHistory:
    """As many more runs at the same time as the limit was at most."""
    made = history
    for number in range(limit_steps(history, ran.process).most(0, history.now) or 99):
        execution = execution_name(ran.process, f"copy {number}", 1)
        start, own = history.by_execution[ran.execution].started, history.row(ran.execution)
        row = replace(own, execution=execution, request_id=f"copy {number}", granted="") if own else None
        attempt = Attempt(execution, "SUCCEEDED", start, ran.ended, row)
        work = [*made.work, replace(ran, execution=execution)]
        rows = [*made.rows, *([row] if row else [])]
        made = replace(made, work=work, attempts=[*made.attempts, attempt], rows=rows)
    return made


def _waiting(history: WorkHistory) -> Iterator[tuple[str, str, WorkHistory]]:
    """A request in front of all others that still waits, although a slot is free, and others were granted theirs."""
    for name, process in history.processes.items():
        own = [each for each in history.rows if each.process == name]
        granted = [each for each in own if each.granted]
        if process.paused or process.rate or process.holders or not process.slot_limit or not granted:
            continue
        last = max(granted, key=lambda each: each.granted)
        place = place_of(0, 0, "0", last.key)
        waits = RequestRow(name, "waits", "QUEUED", "waits", 1, "high", BEGINNING, place, place, 1)
        if not (KeyLimits(history, name).exist or any(row.key for row in own)):
            yield "a slot free for hours while a request waits", "free", replace(history, rows=[*history.rows, waits])
        # The last grant came an hour after the end of all else.
        late = replace(last, started=history.now - 1, granted=last.granted)
        rows = [late if each is last else each for each in history.rows]
        yield "a request passed for hours", "order", replace(history, rows=[*rows, waits])
        return
