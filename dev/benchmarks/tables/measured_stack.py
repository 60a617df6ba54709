"""The layer's code on DynamoDB Local, with the calls and capacity units that it used.

Step Functions and SQS are stand-ins that answer immediately. The workflow's writes are those of its states.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT
from slotkeeper.aws.dynamodb import Item, Table, number
from slotkeeper.events import CompletionEvents
from slotkeeper.slots import protocol
from slotkeeper.slots.callers import Callers
from slotkeeper.slots.dispatch import Report, Tools, dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.endings import Endings, Retention
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.notices import FailureNotices
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.starts import ReservationStarter, Starts

PROCESS, TARGET = "sample", "sample"
_OF_A_TABLE = ("AttributeDefinitions", "KeySchema", "LocalSecondaryIndexes", "GlobalSecondaryIndexes")
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
        _create(dynamodb, self.slots, "SlotTable")
        _create(dynamodb, self.rows, "RequestTable")
        Processes(dynamodb, self.slots).create(PROCESS, limit, TARGET)
        self._item = Table(dynamodb, self.slots, "process_name")
        self.grants = Grants(dynamodb, self.slots)
        self.requests = RequestTable(dynamodb, self.rows, self.slots)
        self.read_side = RequestRows(dynamodb, self.rows)
        self.outcomes = Outcomes(dynamodb, self.rows)
        aws = self._aws()
        starts = Starts(aws, "arn")
        starter = ReservationStarter(starts, self.grants, self.requests, time.time)
        self.tools = Tools(self.grants, self.requests, starter, Doorbell(aws, "url"))
        self.endings = Endings(
            dynamodb,
            self.rows,
            Callers(aws),
            RequestEvents(CompletionEvents(aws, "default", "sample", on_unsent=_fail), self.rows, "dead"),
            FailureNotices(aws, "arn"),
            Retention(86400, 86400),
            "arn:{}".format,
            time.time,
        )

    def _aws(self) -> Any:
        """A client of every other service, which counts its calls."""

        def call(name: str) -> Callable[..., dict[str, int]]:
            def count(**_: object) -> dict[str, int]:
                self.used.calls[name] += 1
                return {"FailedEntryCount": 0}

            return count

        return Mock(
            start_execution=call("StartExecution"),
            send_message=call("SendMessage"),
            send_task_failure=call("SendTaskFailure"),
            put_events=call("PutEvents"),
            publish=call("Publish"),
        )

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

    def accept(self, number_of: int, body_bytes: int, caller: str = "") -> str:
        """Add a request's row; its execution. `body_bytes`: of its arguments. `caller`: the token of one that waits."""
        request = Request(PROCESS, {"--data": "x" * body_bytes}, f"r{number_of}", task_token=caller)
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
        self.outcomes.succeeded(PROCESS, name, time.time())

    def fail(self, name: str) -> None:
        self.outcomes.failed(PROCESS, name, time.time(), "States.TaskFailed", "it was stopped")

    def publish(self, name: str) -> None:
        self.endings.publish(PROCESS, [name])

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


def _fail(reason: str) -> None:
    raise LookupError(reason)


def _ask(params: dict[str, Any], **_: Any) -> None:
    params["ReturnConsumedCapacity"] = "TOTAL"


def _create(dynamodb: Any, name: str, resource: str) -> None:
    """Create a table of the template under another name."""
    properties = yaml_parse((ROOT / "template.yaml").read_text())["Resources"][resource]["Properties"]
    kinds = {kind: properties[kind] for kind in _OF_A_TABLE if kind in properties}
    dynamodb.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **kinds)
