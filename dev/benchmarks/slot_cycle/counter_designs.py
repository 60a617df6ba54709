"""Ways to count to N in DynamoDB, each with its own item and its own calls; the client is the same for all.

A cycle is what one execution does: it takes a place, confirms it where the design has that, and gives it back.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import batched
from typing import Any, ClassVar

from botocore.exceptions import ClientError

from slotkeeper.slots import protocol
from slotkeeper.slots.protocol import Granted, Slots
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.write_units import process_item

PROCESS, JOB = "sample", "sample"

Step = tuple[str, Callable[[str], None]]


class Refused(Exception):
    """There was no place for somebody for whom there was one."""


class Design(ABC):
    """One way.

    Args:
        table: of the design alone.
        holders: who hold a place all the time.
        limit: how many places there are.
    """

    title: ClassVar[str]
    key: ClassVar[str] = "process_name"

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        self.dynamodb = dynamodb
        self.table = table
        self.holders = holders
        self.limit = limit
        self.tries = 0  # of the lock client

    @abstractmethod
    def set_up(self) -> None:
        """Write what stands there before the first cycle."""

    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """The cycle's steps in their order, each for the execution that it is given."""

    def full(self, me: str) -> None:
        """Ask for a place where there is none, until it is known why. Raises TypeError: a bare write has no limit."""
        raise TypeError(f"{self.title} cannot refuse {me}: it has no limit")

    def create(self) -> None:
        """Make the table."""
        self.dynamodb.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": self.key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": self.key, "KeyType": "HASH"}],
        )

    def put_all(self, items: Sequence[dict[str, Any]]) -> None:
        """Write many, as many at once as a call takes."""
        for few in batched(items, 25, strict=False):
            self.dynamodb.batch_write_item(RequestItems={self.table: [{"PutRequest": {"Item": item}} for item in few]})

    def update(self, key: str, expression: str, values: dict[str, Any], **more: Any) -> Any:
        """One bare UpdateItem."""
        return self.dynamodb.update_item(
            TableName=self.table,
            Key={self.key: {"S": key}},
            UpdateExpression=expression,
            ExpressionAttributeValues=values,
            **more,
        )


class Slotkeeper(Design):
    """The layer's own code for reserve; confirm and release with its expressions, as the workflow's states send them.

    The workflow's confirm asks for ReturnValues UPDATED_NEW, of which DynamoDB returns the changed leaves. This engine
    returns the whole map, and its parsing would be measured: so nothing is asked for here.
    """

    title = "Slotkeeper"
    looks_first: ClassVar[bool] = False

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._slots = Slots(dynamodb, table)

    def set_up(self) -> None:
        item = process_item(PROCESS, JOB, self.holders, queued=False)
        self.dynamodb.put_item(TableName=self.table, Item=item | {"slot_limit": {"N": str(self.limit)}})

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._reserve), ("confirm", self._confirm), ("release", self._release))

    def full(self, me: str) -> None:
        # New ones each time: they remember from one refusal to the next whether a process is large.
        Slots(self.dynamodb, self.table, large=[PROCESS] if self.looks_first else []).reserve(PROCESS, me, time.time())

    def _reserve(self, me: str) -> None:
        if not isinstance(self._slots.reserve(PROCESS, me, time.time()), Granted):
            raise Refused(me)

    def _confirm(self, me: str) -> None:
        self.update(
            PROCESS,
            protocol.CONFIRM_UPDATE,
            {":running": {"S": "RUNNING"}},
            ConditionExpression=protocol.CONFIRM_CONDITION,
            ExpressionAttributeNames={"#me": me, "#state": "state"},
        )

    def _release(self, me: str) -> None:
        self.update(
            PROCESS,
            protocol.RELEASE_UPDATE,
            {":one": {"N": "1"}},
            ConditionExpression=protocol.RELEASE_CONDITION,
            ExpressionAttributeNames={"#me": me},
        )


class LooksFirst(Slotkeeper):
    """The same, of a starter that knows the process to be large: it has been refused there before."""

    title = "Slotkeeper, looks first"
    looks_first = True


class Floor(Design):
    """As many bare writes, without a condition, of an item as large: no design with three writes can do with less."""

    title = "bare write"

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=process_item(PROCESS, JOB, self.holders, queued=False))

    def steps(self) -> Sequence[Step]:
        return (("write", self._write),) * 3

    def _write(self, _: str) -> None:
        self.update(PROCESS, "SET slots_in_use = slots_in_use + :one", {":one": {"N": "1"}})


class SmallFloor(Floor):
    """The same of an item that holds nothing."""

    title = "bare, empty item"

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=process_item(PROCESS, JOB, 0, queued=False))


class Counter(Design):
    """The semaphore of AWS's sample, as its state machine has it: a count, and an attribute for each owner.

    "Controlling concurrency in distributed systems using AWS Step Functions" (AWS Compute Blog). Its owners are the
    executions' ARNs; here they are as short as ours. Nothing is confirmed.
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
    """A counter item and an item for each holder, changed together by TransactWriteItems; confirm writes the holder."""

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
        """As SDKs retry a throttle of DynamoDB: up to ten times, up to 50 ms at first and twice as long each time."""
        for attempt in range(10):
            try:
                self.dynamodb.transact_write_items(TransactItems=items)
            except ClientError as error:
                if "TransactionConflict" not in str(error):
                    raise
                time.sleep(random.uniform(0, 0.05 * 2**attempt))
            else:
                return
        raise Refused("ten transactions in conflict")

    def _holder(self, me: str) -> dict[str, Any]:
        return {"process_name": {"S": me}, "state": {"S": "RESERVED"}, "since": {"N": str(int(time.time()))}}


def _moment() -> str:
    """As Step Functions writes the time at which a state was entered."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
