"""Designs of a counting semaphore in DynamoDB, each with its own item and calls, and all with the same client.

In a cycle one execution reserves a slot, confirms it if the design has that step, and releases it.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import batched
from typing import Any, ClassVar

from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Table
from slotkeeper.slots import protocol
from slotkeeper.slots.protocol import Candidate, Granted, Slots
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, Delivery, execution_name
from slotkeeper_cli.write_units import RECEIPT_HANDLE, process_item

PROCESS, JOB = "sample", "sample"
SEQUENCE = "18849496460467696128"  # as long as SQS's

Step = tuple[str, Callable[[str], None]]


class Refused(Exception):
    """A reserve was refused although a slot was free."""


def delivery(me: str) -> Delivery:
    """The first delivery of a request's message. Each grant replaces the tombstone of the one before."""
    return Delivery(me, "", PROCESS, "", SEQUENCE, 1, 0.0)


def item_with_tombstones(holders: int, priorities: Sequence[str] = (DEFAULT_PRIORITY,)) -> dict[str, Any]:
    """A process's item after a grant of each of these priorities, while no request waits."""
    tombstone = {"M": {"sequence": {"S": delivery("").sortable_sequence}, "receives": {"N": "1"}}}
    waiting = {"waiting": {"M": dict.fromkeys(priorities, tombstone)}}
    return process_item(PROCESS, JOB, holders, queued=False) | waiting | {"run_settings": {"M": {}}}


class Design(ABC):
    """One design.

    Args:
        table: of this design alone.
        holders: the number of holders that keep their slots.
        limit: the number of slots.
    """

    title: ClassVar[str]
    key: ClassVar[str] = "process_name"

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        self.dynamodb = dynamodb
        self.table = table
        self.holders = holders
        self.limit = limit

    @abstractmethod
    def set_up(self) -> None:
        """Write the items before the first cycle."""

    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """The steps of a cycle in order; each receives the execution's name."""

    def cycle(self, me: str) -> None:
        for _, take in self.steps():
            take(me)

    def full(self, me: str) -> None:
        """Reserve without a free slot, and read the reason. Raises TypeError for a bare write, which has no limit."""
        raise TypeError(f"{self.title} has no limit, so it cannot refuse {me}")

    def create(self) -> None:
        self.dynamodb.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": self.key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": self.key, "KeyType": "HASH"}],
        )

    def put_all(self, items: Sequence[dict[str, Any]]) -> None:
        for few in batched(items, 25, strict=False):
            self.dynamodb.batch_write_item(RequestItems={self.table: [{"PutRequest": {"Item": item}} for item in few]})

    def update(self, key: str, expression: str, values: dict[str, Any], **more: Any) -> Any:
        return self.dynamodb.update_item(
            TableName=self.table,
            Key={self.key: {"S": key}},
            UpdateExpression=expression,
            ExpressionAttributeValues=values,
            **more,
        )


class Slotkeeper(Design):
    """The layer's code for reserve; confirm and release with its expressions, as the workflow's states send them.

    The workflow's confirm has ReturnValues UPDATED_NEW, for which DynamoDB returns the changed leaves. This engine
    returns the whole map, and its parsing would be measured, so this confirm has none.
    """

    title = "Slotkeeper"
    reads_first: ClassVar[bool] = False
    priorities: ClassVar[Sequence[str]] = (DEFAULT_PRIORITY,)
    release_update: ClassVar[str] = protocol.RELEASE_UPDATE

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._slots = Slots(dynamodb, table)

    def set_up(self) -> None:
        item = item_with_tombstones(self.holders, self.priorities)
        self.dynamodb.put_item(TableName=self.table, Item=item | {"slot_limit": {"N": str(self.limit)}})

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._reserve), ("confirm", self._confirm), ("release", self._release))

    def full(self, me: str) -> None:
        # A new instance each time, since Slots stores after a refusal whether a process is large.
        Slots(self.dynamodb, self.table, large=[PROCESS] if self.reads_first else []).reserve(
            self.candidate(me), time.time()
        )

    def candidate(self, me: str) -> Candidate:
        """As the starter makes it of a request without priority and weight."""
        return Candidate(PROCESS, me, delivery=delivery(me))

    def _reserve(self, me: str) -> None:
        if not isinstance(self._slots.reserve(self.candidate(me), time.time()), Granted):
            raise Refused(me)

    def _confirm(self, me: str) -> None:
        self.update(
            PROCESS,
            protocol.CONFIRM_UPDATE,
            {":running": {"S": "RUNNING"}, ":none": {"M": {}}},
            ConditionExpression=protocol.CONFIRM_CONDITION,
            ExpressionAttributeNames={"#me": me, "#state": "state"},
        )

    def _release(self, me: str) -> None:
        self.update(
            PROCESS,
            self.release_update,
            {":one": {"N": "1"}},
            ConditionExpression=protocol.RELEASE_CONDITION,
            ExpressionAttributeNames={"#me": me},
        )


class ReadsFirst(Slotkeeper):
    """The same for a starter that was refused by this large process before, so that it reads before it writes."""

    title = "Slotkeeper, reads first"
    reads_first = True


class ThreePriorities(Slotkeeper):
    """The same with an item that has a tombstone of each priority."""

    title = "Slotkeeper, three priorities"
    priorities = PRIORITIES


class Weighted(Slotkeeper):
    """The same for weights of 2 to 6: a read, and a write that depends on the limit that was read."""

    title = "Slotkeeper, weights 2 to 6"
    weights: ClassVar[Sequence[int]] = range(2, 7)

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        # As many of the heaviest fit as of weight 1.
        super().__init__(dynamodb, table, holders, holders + (limit - holders) * max(self.weights))

    def candidate(self, me: str) -> Candidate:
        return Candidate(PROCESS, me, weight=random.choice(self.weights), delivery=delivery(me))


class WithoutPriorities(Slotkeeper):
    """The protocol before it had priorities and weights: its three expressions, and an item without `waiting`."""

    title = "without priorities"

    reserve_update: ClassVar[str] = "SET slots_in_use = slots_in_use + :one, holders.#me = :entry"
    reserve_condition: ClassVar[str] = (
        "slots_in_use < slot_limit AND size(holders) < slot_limit AND attribute_not_exists(holders.#me) "
        "AND attribute_not_exists(cancelled.#me) AND (attribute_not_exists(paused) OR paused = :false)"
    )
    release_update = "SET slots_in_use = slots_in_use - :one REMOVE holders.#me"
    registration: ClassVar[dict[str, Any]] = {
        "receipt_handle": {"S": "h" * RECEIPT_HANDLE},
        "sequence": {"S": SEQUENCE.zfill(40)},
        "receives": {"N": "1"},
        "since": {"N": "1789999999"},
        "execution": {"S": execution_name(PROCESS, "", 1)},
        "request_id": {"S": "i" * 36},
    }
    has_waited: ClassVar[bool] = False

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._table = Table(dynamodb, table, self.key)

    def set_up(self) -> None:
        item = item_with_tombstones(self.holders, ()) | {"slot_limit": {"N": str(self.limit)}}
        del item["waiting"]
        if self.has_waited:
            item["waiting"] = {"M": self.registration}
        self.dynamodb.put_item(TableName=self.table, Item=item)

    def full(self, me: str) -> None:
        with suppress(Refused):
            self._reserve(me)

    def _reserve(self, me: str) -> None:
        entry = {"M": {"state": {"S": "RESERVED"}, "since": {"N": str(int(time.time()))}}}
        values = {":one": {"N": "1"}, ":entry": entry, ":false": {"BOOL": False}}
        if not self._table.update(PROCESS, self.reserve_update, self.reserve_condition, values, {"#me": me}).held:
            raise Refused(me)


class WithoutPrioritiesWaited(WithoutPriorities):
    """The same with an item in which a request has waited: its registration was never removed."""

    title = "without priorities, waited"
    has_waited = True


class Floor(Design):
    """Three bare writes of an item of the same size, without a condition: the lower bound of three writes."""

    title = "bare write"
    writes: ClassVar[int] = 3

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=item_with_tombstones(self.holders))

    def steps(self) -> Sequence[Step]:
        return (("write", self._write),) * self.writes

    def _write(self, _: str) -> None:
        self.update(PROCESS, "SET slots_in_use = slots_in_use + :one", {":one": {"N": "1"}})


class SmallFloor(Floor):
    """The same with an item without holders."""

    title = "bare, empty item"

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=item_with_tombstones(0, ()))


class Counter(Design):
    """The semaphore of AWS's sample, as in its state machine: a count, and an attribute for each owner.

    "Controlling concurrency in distributed systems using AWS Step Functions" (AWS Compute Blog). Its owners are the
    executions' ARNs; here their names are as short as Slotkeeper's. It has no confirm.
    """

    title = "AWS sample"
    key = "LockName"

    def set_up(self) -> None:
        owners = {execution_name(PROCESS, str(number), 1): {"S": _moment()} for number in range(self.holders)}
        item = {"LockName": {"S": PROCESS}, "currentlockcount": {"N": str(self.holders)}, **owners}
        self.dynamodb.put_item(TableName=self.table, Item=item)

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._acquire), ("release", self._release))

    def full(self, me: str) -> None:
        try:
            self._acquire(me)
        except self.dynamodb.exceptions.ConditionalCheckFailedException:
            self.dynamodb.get_item(
                TableName=self.table,
                Key={"LockName": {"S": PROCESS}},
                ProjectionExpression="#lockownerid",
                ExpressionAttributeNames={"#lockownerid": me},
            )

    def _acquire(self, me: str) -> None:
        self.update(
            PROCESS,
            "SET #currentlockcount = #currentlockcount + :increase, #lockownerid = :lockacquiredtime",
            {":increase": {"N": "1"}, ":limit": {"N": str(self.limit)}, ":lockacquiredtime": {"S": _moment()}},
            ConditionExpression="currentlockcount <> :limit and attribute_not_exists(#lockownerid)",
            ExpressionAttributeNames={"#currentlockcount": "currentlockcount", "#lockownerid": me},
            ReturnValues="UPDATED_NEW",
        )

    def _release(self, me: str) -> None:
        self.update(
            PROCESS,
            "SET #currentlockcount = #currentlockcount - :decrease REMOVE #lockownerid",
            {":decrease": {"N": "1"}},
            ConditionExpression="attribute_exists(#lockownerid)",
            ExpressionAttributeNames={"#currentlockcount": "currentlockcount", "#lockownerid": me},
            ReturnValues="UPDATED_NEW",
        )


class Transaction(Design):
    """A counter item and an item per holder, changed together by TransactWriteItems. Confirm writes the holder's."""

    title = "transaction"

    def set_up(self) -> None:
        counter = {"slot_limit": {"N": str(self.limit)}, "slots_in_use": {"N": str(self.holders)}}
        names = [execution_name(PROCESS, str(number), 1) for number in range(self.holders)]
        self.put_all([{"process_name": {"S": PROCESS}, **counter}, *map(self._holder, names)])

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._reserve), ("confirm", self._confirm), ("release", self._release))

    def full(self, me: str) -> None:
        try:
            self._reserve(me)
        except self.dynamodb.exceptions.TransactionCanceledException:
            return

    def _reserve(self, me: str) -> None:
        self._together(
            self._count("slots_in_use + :one", "slots_in_use < slot_limit AND attribute_not_exists(paused)"),
            {
                "Put": {
                    "TableName": self.table,
                    "Item": self._holder(me),
                    "ConditionExpression": "attribute_not_exists(process_name)",
                }
            },
        )

    def _confirm(self, me: str) -> None:
        self.update(
            me,
            "SET #state = :running, job = :job",
            {":running": {"S": "RUNNING"}, ":job": {"S": JOB}},
            ConditionExpression="attribute_exists(process_name)",
            ExpressionAttributeNames={"#state": "state"},
        )

    def _release(self, me: str) -> None:
        self._together(
            self._count("slots_in_use - :one", "attribute_exists(process_name)"),
            {
                "Delete": {
                    "TableName": self.table,
                    "Key": {"process_name": {"S": me}},
                    "ConditionExpression": "attribute_exists(process_name)",
                }
            },
        )

    def _count(self, count: str, condition: str) -> dict[str, Any]:
        return {
            "Update": {
                "TableName": self.table,
                "Key": {"process_name": {"S": PROCESS}},
                "UpdateExpression": f"SET slots_in_use = {count}",
                "ConditionExpression": condition,
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }

    def _together(self, *items: dict[str, Any]) -> None:
        """Retry conflicts as SDKs retry a throttle of DynamoDB: up to ten times, up to 50 ms, doubled each time."""
        for attempt in range(10):
            try:
                self.dynamodb.transact_write_items(TransactItems=items)
            except ClientError as error:
                if "TransactionConflict" not in str(error):
                    raise
                time.sleep(random.uniform(0, 0.05 * 2**attempt))
            else:
                return
        raise Refused("ten transactions had conflicts")

    def _holder(self, me: str) -> dict[str, Any]:
        return {"process_name": {"S": me}, "state": {"S": "RESERVED"}, "since": {"N": str(int(time.time()))}}


def _moment() -> str:
    """The current time in Step Functions' format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
