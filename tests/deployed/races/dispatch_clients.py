"""Dispatchers in a separate process that race for the queue of one process.

Each thread dispatches, runs the work of what it has started, cancels requests and moves the limit. Step Functions is
simulated: it throttles some starts, so that their reservations are put back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Table, number
from slotkeeper.slots import grants, protocol, request_table
from slotkeeper.slots.dispatch import Tools, dispatch
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.process import MAX_SLOT_LIMIT
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.starts import NotStarted, ReservationStarter, Running, StartOutcome
from tests.deployed.races.client_processes import PROCESS
from tests.deployed.races.client_threads import Change, changed, run_clients, serve

NOW = 1_800_000_000.0  # of all clocks: no reservation becomes old, since no dispatcher dies
MODULES: dict[str, ModuleType] = {"grants": grants, "request_table": request_table}


@dataclass(frozen=True)
class DispatchOrders:
    """One race.

    Args:
        cancels: the share of steps in which a thread cancels up to three requests.
        limits: to which the limit is moved; empty: it stays.
        throttled: the share of starts.
        steps: at most, of each thread. It ends earlier if the queue is empty.
        changes: by the name of the module.
    """

    slots: str
    rows: str
    cancels: float
    limits: list[int]
    throttled: float
    steps: int
    history: str
    changes: dict[str, list[Change]]


@dataclass
class Did:
    """What the clients did. `cancelled` and `confirmed`: names of requests, by the answers; `kept`: not cancelled."""

    cancelled: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    refused_grants: int = 0
    put_back: int = 0

    def add(self, other: Did) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


class _Starts:
    """Step Functions."""

    def __init__(self, chance: random.Random, throttled: float) -> None:
        self._random, self._throttled = chance, throttled

    def start(self, _name: str, _text: str) -> StartOutcome:
        return NotStarted("throttled") if self._random.random() < self._throttled else Running()


class _NoBell:
    def ring(self, _bell: Bell, _delay: float = 0) -> None:
        """Nothing: each dispatcher begins again without a ring."""


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


class Dispatcher:
    """One thread."""

    def __init__(self, dynamodb: Any, orders: DispatchOrders, number: int) -> None:
        self.did = Did()
        self._orders = orders
        self._random = random.Random(number)  # noqa: S311
        self._slots = Table(dynamodb, orders.slots, "process_name")
        self._outcomes = Outcomes(dynamodb, orders.rows)
        self._rows = RequestTable(dynamodb, orders.rows, orders.slots)
        self._workflow = Workflow(dynamodb, orders.slots, PROCESS)
        given = Grants(dynamodb, orders.slots)
        starter = ReservationStarter(
            _Starts(self._random, orders.throttled),  # type: ignore[arg-type]
            given,
            self._rows,
            lambda: NOW,
            each=_in_turn,
        )
        self._tools = Tools(
            given,
            self._rows,
            starter,
            _NoBell(),  # type: ignore[arg-type]
            age=60,
            clock=lambda: NOW,
            sleep=lambda _: None,
        )
        self._started: list[str] = []

    def run(self) -> None:
        for _ in range(self._orders.steps):
            report = dispatch(self._tools, Bell(PROCESS))
            self.did.refused_grants += report.refused_grants
            self.did.put_back += len(report.put_back)
            self._started += report.started
            if self._random.random() < self._orders.cancels:
                self._cancel()
            if self._orders.limits and self._random.random() < 0.2:
                limit = number(self._random.choice(self._orders.limits))
                self._slots.update(PROCESS, "SET slot_limit = :to", "attribute_exists(grants)", {":to": limit})
            if self._started:
                self._work(self._started.pop(0))
            elif not any(self._rows.queue(PROCESS, max(self._orders.limits, default=1), 1)):
                return
        for name in self._started:
            self._work(name)

    def _cancel(self) -> None:
        """Cancel requests at the head of the queue, which are just granted, or will be."""
        page = next(self._rows.queue(PROCESS, MAX_SLOT_LIMIT, self._random.randint(1, 3)))
        names = [each.execution for each in page]
        asked = [Leaving(name, "CANCELLED", "Cancelled", "by an operator") for name in names]
        left = [each.execution for each in self._rows.leave(PROCESS, asked, NOW)]
        self.did.cancelled += left
        self.did.kept += [name for name in names if name not in left]

    def _work(self, name: str) -> None:
        """Confirm, record the outcome, release."""
        if self._workflow.confirm(name):
            self.did.confirmed.append(name)
        self._outcomes.succeeded(PROCESS, name, NOW)
        self._workflow.release(name)


def _in_turn[T, R](work: Callable[[T], R], listed: Iterable[T]) -> list[R]:
    return [work(each) for each in listed]


def _race(dynamodb: Any, given: dict[str, Any], numbers: range) -> None:
    orders = DispatchOrders(**given)
    clients = [Dispatcher(dynamodb, orders, number) for number in numbers]

    def save() -> None:
        total = Did()
        for client in clients:
            total.add(client.did)
        Path(orders.history).write_text(json.dumps(asdict(total)))

    with ExitStack() as replaced:
        for module, changes in orders.changes.items():
            replaced.enter_context(changed(MODULES[module], changes))
        run_clients([client.run for client in clients], save)


if __name__ == "__main__":
    serve(_race, lost=0)
