"""Starters, workflows and janitors in a separate process that race for the slots of one process.

Each thread makes one step after the other, each with a random one of a few executions, so that every step meets every
state and every other client. Some answers are lost; a client repeats the call until it receives an answer.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from dev.judge.slot_item import Holder
from slotkeeper.slots import process, protocol
from slotkeeper.slots.process import Process, WaitingRequest
from slotkeeper.slots.protocol import Candidate, Full, Granted, Paused, Registration, Reservation, Slots
from slotkeeper.slots.request import Priority
from tests.races.client_threads import Change, changed, run_clients, serve
from tests.races.slot_history import Operation, Step, save
from tests.races.slot_messages import Message, Messages


@dataclass(frozen=True)
class Orders:
    """One race.

    Args:
        executions, priorities, weights: see Messages.
        most_holders: instead of MAX_HOLDERS.
        until: the end by the monotonic clock, but not before
        min_steps: the steps of each thread.
        changes: of the protocol, for this race.
        reads_first: reserve reads and then writes, without a condition.
    """

    table: str
    process: str
    executions: int
    priorities: list[Priority]
    weights: list[int]
    most_holders: int
    until: float
    min_steps: int
    history: str
    changes: list[Change]
    reads_first: bool


class Workflow:
    """The workflow's two steps, with its expressions of slots/protocol.py."""

    def __init__(self, dynamodb: Any, table: str, process: str) -> None:
        self._dynamodb = dynamodb
        self._where = {"TableName": table, "Key": {"process_name": {"S": process}}}

    def confirm(self, execution: str) -> bool:
        names = {"#me": execution, "#state": "state"}
        running = {":running": {"S": "RUNNING"}, ":none": {"M": {}}}
        return self._update(protocol.CONFIRM_UPDATE, protocol.CONFIRM_CONDITION, names, running)

    def release(self, execution: str) -> bool:
        names = {"#me": execution}
        return self._update(protocol.RELEASE_UPDATE, protocol.RELEASE_CONDITION, names, {":one": {"N": "1"}})

    def _update(self, update: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]) -> bool:
        try:
            self._dynamodb.update_item(
                **self._where,
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True


class ReadsFirst(Slots):
    """The common bug: read whether a slot is free, then write."""

    def reserve(self, candidate: Candidate, now: float) -> Reservation:
        item = self.read(candidate.process)
        assert item is not None
        if not item.fits(1) or candidate.execution in item.holders:
            return Full(item)
        entry = {"M": {"state": {"S": "RESERVED"}, "since": {"N": str(int(now))}}}
        self._table.dynamodb.update_item(
            TableName=self._table.name,
            Key={"process_name": {"S": candidate.process}},
            UpdateExpression="SET slots_in_use = :count, holders.#me = :entry",
            ExpressionAttributeNames={"#me": candidate.execution},
            ExpressionAttributeValues={":count": {"N": str(item.slots_in_use + 1)}, ":entry": entry},
        )
        return Granted()


class Client:
    """One thread, which acts as starter, workflow and janitor in turn."""

    def __init__(self, dynamodb: Any, orders: Orders, number: int) -> None:
        kind = ReadsFirst if orders.reads_first else Slots
        self.operations: list[Operation] = []
        self._slots = kind(dynamodb, orders.table)
        self._workflow = Workflow(dynamodb, orders.table, orders.process)
        self._orders = orders
        self._process = orders.process
        self._messages = Messages(orders.process, orders.executions, orders.priorities, orders.weights)
        self._random = random.Random(number)  # noqa: S311
        self._marks = itertools.count(number * 10**8)
        self._refused: tuple[Message, Process] | None = None
        self._woken: WaitingRequest | None = None
        self._seen_holders: Mapping[str, Mapping[str, Any]] = {}

    def run(self) -> None:
        steps = {
            self._deliver: 48,
            self._ask_without_message: 2,
            self._wait: 6,
            self._wake: 12,
            self._confirm: 12,
            self._release: 12,
            self._cancel: 7,
            self._quiet: 4,
            self._reclaim: 8,
            self._read: 3,  # seldom, so that the janitor acts on an old read
        }
        kinds, weights = list(steps), list(steps.values())
        while time.monotonic() < self._orders.until or len(self.operations) < self._orders.min_steps:
            self._random.choices(kinds, weights)[0]()

    def _deliver(self) -> None:
        self._starter(self._messages.any(self._random))

    def _starter(self, message: Message) -> None:
        """Reserve a slot for a message. If it is refused, sometimes register it, and sometimes dead-letter it."""
        answer = self._ask(message)
        if not isinstance(answer, Full | Paused):
            return
        self._refused = message, answer.seen
        chance = self._random.random()
        if chance < 0.3:
            self._wait()
        elif chance < 0.35:
            self._do("end_wait", message, lambda mark: self._slots.end_wait(self._candidate(message, mark)))

    def _wait(self) -> None:
        """Register the message that was refused last. As a step of its own, it is that of a slow starter."""
        if self._refused:
            message, seen = self._refused
            self._do("wait", message, lambda mark: self._slots.wait(self._candidate(message, mark), seen, mark))

    def _ask_without_message(self) -> None:
        self._ask(self._messages.any(self._random)._replace(sequence=0))

    def _ask(self, message: Message) -> Any:
        return self._do("reserve", message, lambda mark: self._slots.reserve(self._candidate(message, mark), mark))

    def _wake(self) -> None:
        """Wake the waiting request whose turn it is: it is received again, or SQS rejects the receipt handle."""
        due = self._slots.to_wake(self._process, time.time())
        if due is None:
            return
        waiting = due.waiting
        if self._random.random() < 0.5:
            self._starter(self._messages.receive(int(waiting.sequence), waiting.receives + 1))
        else:
            # A slow waker clears what it read at an earlier wake.
            spent, self._woken = self._woken or waiting, waiting
            self._do("clear", spent.receipt_handle, lambda _: self._slots.clear(self._process, spent, time.time()))

    def _candidate(self, message: Message, mark: int) -> Candidate:
        return message.candidate(self._process, mark)

    def _confirm(self) -> None:
        name = self._any_execution()
        self._do("confirm", name, lambda _: self._workflow.confirm(name))

    def _release(self) -> None:
        name = self._any_execution()
        self._do("release", name, lambda _: self._workflow.release(name))

    def _cancel(self) -> None:
        name = self._any_execution()
        self._do("cancel", name, lambda _: self._slots.cancel(self._process, name))

    def _read(self) -> None:
        item = self._slots.read(self._process)
        assert item is not None
        self._seen_holders = {name: holder.raw for name, holder in item.holders.items()}

    def _quiet(self) -> None:
        self._as_seen("quiet", lambda name, raw, mark: self._slots.mark_quiet(self._process, name, raw, mark))

    def _reclaim(self) -> None:
        self._as_seen("reclaim", lambda name, raw, _: self._slots.release(self._process, name, raw))

    def _as_seen(self, step: Step, act: Callable[[str, Mapping[str, Any], int], bool]) -> None:
        if not self._seen_holders:
            return self._read()
        name = self._random.choice(list(self._seen_holders))
        raw = self._seen_holders[name]
        self._do(step, name, lambda mark: act(name, raw, mark), Holder.read(raw))
        return None

    def _any_execution(self) -> str:
        return f"{self._process}-{self._random.randrange(self._orders.executions)}"

    def _do(self, step: Step, about: str | Message, call: Callable[[int], Any], seen: Holder | None = None) -> Any:
        marks = []
        start = time.monotonic()
        while True:
            marks.append(next(self._marks))
            try:
                answer = call(marks[-1])
            except ReadTimeoutError:
                continue
            break
        answered = str(answer) if isinstance(answer, bool) else type(answer).__name__
        answered = answer.name if isinstance(answer, Registration) else answered
        name, message = (about.execution, about) if isinstance(about, Message) else (about, None)
        self.operations.append(Operation(step, name, start, time.monotonic(), answered, marks, seen, message))
        return answer


def _race(dynamodb: Any, given: dict[str, Any], numbers: range) -> None:
    orders = Orders(**given)
    clients = [Client(dynamodb, orders, number) for number in numbers]
    most = orders.most_holders
    with changed(process, MAX_HOLDERS=most), changed(protocol, orders.changes, MAX_HOLDERS=most):
        run_clients(
            [client.run for client in clients],
            lambda: save((each for client in clients for each in client.operations), Path(orders.history)),
        )


if __name__ == "__main__":
    serve(_race)
