"""A process and its queue on DynamoDB Local, dispatched by the starter's code. Its executions are not run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import batched
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT
from slotkeeper.aws.dynamodb import Item, Table, number
from slotkeeper.slots import protocol
from slotkeeper.slots.dispatch import Tools, dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import Request
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.starts import ReservationStarter, Running, StartOutcome, Starts

PROCESS, NOW = "process", 1_800_000_000.0
_SHAPE = ("AttributeDefinitions", "KeySchema", "LocalSecondaryIndexes", "GlobalSecondaryIndexes", "BillingMode")


class KeyedQueue(Starts, Doorbell):
    """The process. A ring is a dispatch.

    Attributes:
        started: the names of the executions, in the order of their starts.
        requests: execution -> its request.
        stream: the ARN of the stream of the process's item.

    Args:
        name: of its tables.
        settings: of Processes.create.
    """

    def __init__(self, dynamodb: Any, name: str, **settings: Any) -> None:
        self.started: SimpleQueue[str] = SimpleQueue()
        self.requests: dict[str, Request] = {}
        self._dynamodb, slots, self._rows = dynamodb, f"{name}-slots", f"{name}-requests"
        stream = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}}
        for table, resource, more in ((self._rows, "RequestTable", {}), (slots, "SlotTable", stream)):
            shape = {each: value for each, value in _resources()[resource]["Properties"].items() if each in _SHAPE}
            made = dynamodb.create_table(TableName=table, **shape, **more)
        self.stream: str = made["TableDescription"]["LatestStreamArn"]
        self.slots, self.outcomes = Table(dynamodb, slots, "process_name"), Outcomes(dynamodb, self._rows)
        self.processes = Processes(dynamodb, slots)
        self.processes.create(PROCESS, target="job", **settings)
        grants, requests = Grants(dynamodb, slots), RequestTable(dynamodb, self._rows, slots)
        starter = ReservationStarter(self, grants, requests, lambda: NOW, lambda work, names: [*map(work, names)])
        self._tools = Tools(grants, requests, starter, self, clock=lambda: NOW, sleep=lambda _: None)

    def start(self, name: str, text: str) -> StartOutcome:  # noqa: ARG002
        self.started.put(name)
        return Running()

    def ring(self, bell: Bell, delay: float = 0) -> None:  # noqa: ARG002
        dispatch(self._tools, bell)

    def send(self, keys: Iterable[str], **fields: Any) -> None:
        """Queue a request of each key, in this order; "" is a request without a key."""
        rows: list[Item] = []
        collected: Any = SimpleNamespace(add=rows.append)
        for key in keys:
            sequence = str(len(self.requests))
            request = Request(PROCESS, {}, sequence, key=key, **fields)
            self.requests[request.execution_name] = request
            accept(collected, request, sequence, NOW, sequence, NOW)
        for batch in batched(rows, 25, strict=False):
            puts: Any = [{"PutRequest": {"Item": row}} for row in batch]
            self._dynamodb.batch_write_item(RequestItems={self._rows: puts})

    def hold(self, keys: Iterable[str]) -> None:
        """Let an execution of each key hold a slot, and no other one."""
        holder = {"state": {"S": "RUNNING"}, "since": number(int(NOW)), "job": {"S": "job"}}
        holders = {f"{PROCESS}-{key}": {"M": {**holder, "key": {"S": key}}} for key in keys}
        held = {"holders": {"M": holders}, "slots_in_use": number(len(holders))}
        self._dynamodb.put_item(TableName=self.slots.name, Item=self.slots.read(PROCESS) | held)

    def confirm(self, name: str) -> None:
        values = {":running": {"S": "RUNNING"}, ":none": {"M": {}}}
        names = {"#me": name, "#state": "state"}
        self.slots.update(PROCESS, protocol.CONFIRM_UPDATE, protocol.CONFIRM_CONDITION, values, names)

    def release(self, name: str) -> None:
        one = {":one": number(1)}
        self.slots.update(PROCESS, protocol.RELEASE_UPDATE, protocol.RELEASE_CONDITION, one, {"#me": name})


@cache
def _resources() -> dict[str, Any]:
    resources: dict[str, Any] = yaml_parse((ROOT / "template.yaml").read_text())["Resources"]
    return resources
