"""The layer's code on DynamoDB Local, with the calls and capacity units that it used.

Step Functions and SQS are stand-ins that answer immediately. The workflow's writes are those of its states.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from slotkeeper.aws.dynamodb import Item, Table, number
from slotkeeper.slots import protocol
from slotkeeper.slots.dispatch import Report, Tools, dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.starts import ReservationStarter, Starts

PROCESS, TARGET = "sample", "sample"
# As in the template, RequestTable: index -> its sort key's type, and the other attributes that it contains.
INDEXES = {
    "place": ("S", ["weight", "start_before", "skips", "request_id"]),
    "deadline": ("N", ["place", "weight", "start_before", "skips"]),
    "open": ("N", ["state", "request_id"]),
}
_READS = {"GetItem", "Query", "BatchGetItem"}


@dataclass
class Used:
    """Calls by their names, and capacity units of DynamoDB."""

    calls: Counter[str] = field(default_factory=Counter)
    reads: float = 0.0
    writes: float = 0.0

    @property
    def number(self) -> int:
        return self.calls.total()


class MeasuredStack:
    """Both tables with one process."""

    def __init__(self, dynamodb: Any, name: str, limit: int) -> None:
        self.dynamodb, self.slots, self.rows = dynamodb, f"{name}-slots", f"{name}-rows"
        self.used = Used()
        _create(dynamodb, self.slots, "process_name")
        _create(dynamodb, self.rows, "process_name", "execution")
        Processes(dynamodb, self.slots).create(PROCESS, limit, TARGET)
        self._item = Table(dynamodb, self.slots, "process_name")
        self.grants = Grants(dynamodb, self.slots)
        self.requests = RequestTable(dynamodb, self.rows, self.slots)
        self.read_side = RequestRows(dynamodb, self.rows)
        starts, sqs = Starts(self._counting("StartExecution"), "arn"), self._counting("SendMessage")
        starter = ReservationStarter(starts, self.grants, self.requests, time.time)
        self.tools = Tools(self.grants, self.requests, starter, Doorbell(sqs, "url"))

    def _counting(self, call: str) -> Any:
        def count(**_: object) -> None:
            self.used.calls[call] += 1

        return Mock(start_execution=count, send_message=count)

    @contextmanager
    def measured(self) -> Iterator[Used]:
        """What a block uses."""
        self.used = Used()
        events = self.dynamodb.meta.events
        events.register("provide-client-params.dynamodb.*", _ask)
        events.register("after-call.dynamodb.*", self._note)
        try:
            yield self.used
        finally:
            events.unregister("provide-client-params.dynamodb.*", _ask)
            events.unregister("after-call.dynamodb.*", self._note)
            self.used = Used()

    def _note(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        self.used.calls[model.name] += 1
        consumed = parsed.get("ConsumedCapacity", [])
        units = sum(each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed]))
        if model.name in _READS:
            self.used.reads += units
        else:
            self.used.writes += units

    # ------------------------------------------------------------------------------------------ the steps of a request

    def accept(self, number_of: int, body_bytes: int) -> str:
        """Add a request's row; its execution. `body_bytes`: of its arguments."""
        request = Request(PROCESS, {"--data": "x" * body_bytes}, f"r{number_of}")
        accept(self.requests, request, f"m{number_of}", time.time(), str(number_of), time.time())
        return request.execution_name

    def dispatch(self) -> Report:
        return dispatch(self.tools, Bell(PROCESS))

    def process(self) -> Process:
        seen = self.grants.read(PROCESS)
        if seen is None:
            raise LookupError(f"{PROCESS} is gone")
        return seen

    def grant(self, names: Sequence[str]) -> None:
        """Grant slots alone, without a queue and starts."""
        seen = self.process()
        self.grants.grant(seen, [PlannedStart(name, 1) for name in names], seen.next_start, time.time())

    def confirm(self, name: str) -> None:
        values: Item = {":running": {"S": "RUNNING"}, ":none": {"M": {}}}
        names = {"#me": name, "#state": "state"}
        self._item.update(PROCESS, protocol.CONFIRM_UPDATE, protocol.CONFIRM_CONDITION, values, names)

    def record(self, name: str) -> None:
        self.requests.record(PROCESS, name, "SUCCEEDED", time.time())

    def release(self, name: str) -> None:
        update, condition = protocol.RELEASE_UPDATE, protocol.RELEASE_CONDITION
        self._item.update(PROCESS, update, condition, {":one": number(1)}, {"#me": name})

    def write(self) -> None:
        """A bare write of the item, without a condition: the lower bound."""
        self.dynamodb.update_item(
            TableName=self.slots,
            Key={"process_name": {"S": PROCESS}},
            UpdateExpression="SET grants = grants + :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )

    def hold(self, count: int, state: str = "RUNNING") -> list[str]:
        """Replace the holders by this number of them; their names."""
        names = [execution_name(PROCESS, f"h{number_of}", 1) for number_of in range(count)]
        holder = {"state": {"S": state}, "since": number(int(time.time())), "job": {"S": TARGET}}
        self.dynamodb.update_item(
            TableName=self.slots,
            Key={"process_name": {"S": PROCESS}},
            UpdateExpression="SET holders = :holders, slots_in_use = :count",
            ExpressionAttributeValues={
                ":holders": {"M": {name: {"M": holder} for name in names}},
                ":count": number(count),
            },
        )
        return names


def _ask(params: dict[str, Any], **_: Any) -> None:
    params["ReturnConsumedCapacity"] = "TOTAL"


def _create(dynamodb: Any, name: str, key: str, sort_key: str = "") -> None:
    schema = [{"AttributeName": key, "KeyType": "HASH"}]
    types = {key: "S"} | ({sort_key: "S"} | {index: kind for index, (kind, _) in INDEXES.items()} if sort_key else {})
    local = [
        {
            "IndexName": index,
            "KeySchema": [*schema, {"AttributeName": index, "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": included},
        }
        for index, (_, included) in INDEXES.items()
    ]
    sorted_by = {
        "KeySchema": [*schema, {"AttributeName": sort_key, "KeyType": "RANGE"}],
        "LocalSecondaryIndexes": local,
    }
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": kind} for each, kind in types.items()],
        **(sorted_by if sort_key else {"KeySchema": schema}),
    )
