"""Designs of a counting semaphore in DynamoDB, each with its own item and calls, and all with the same client.

In a cycle one execution reserves a slot, confirms it if the design has that step, and releases it.
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
from slotkeeper.slots.protocol import Candidate, Granted, Slots
from slotkeeper.slots.request import DEFAULT_PRIORITY, Delivery, execution_name
from slotkeeper_cli.write_units import process_item

PROCESS, JOB = "sample", "sample"
SEQUENCE = "18849496460467696128"  # as long as SQS's

Step = Callable[[str], None]  # receives the execution's name


class Refused(Exception):
    """A reserve was refused although a slot was free."""


def delivery(me: str) -> Delivery:
    """The first delivery of a request's message. Each grant replaces the tombstone of the one before."""
    return Delivery(me, "", PROCESS, "", SEQUENCE, 1, 0.0)


def item_with_tombstone(holders: int) -> dict[str, Any]:
    """A process's item after a grant, while no request waits."""
    tombstone = {"M": {"sequence": {"S": delivery("").sortable_sequence}, "receives": {"N": "1"}}}
    return process_item(PROCESS, JOB, holders, queued=False) | {"waiting": {"M": {DEFAULT_PRIORITY: tombstone}}}


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
        """The steps of a cycle in order."""

    def cycle(self, me: str) -> None:
        for step in self.steps():
            step(me)

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

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._slots = Slots(dynamodb, table)

    def set_up(self) -> None:
        item = item_with_tombstone(self.holders)
        self.dynamodb.put_item(TableName=self.table, Item=item | {"slot_limit": {"N": str(self.limit)}})

    def steps(self) -> Sequence[Step]:
        return (self._reserve, self._confirm, self._release)

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
            protocol.RELEASE_UPDATE,
            {":one": {"N": "1"}},
            ConditionExpression=protocol.RELEASE_CONDITION,
            ExpressionAttributeNames={"#me": me},
        )


class Weighted(Slotkeeper):
    """The same for weights of 2 to 6: a read, and a write that depends on the limit that was read."""

    title = "Slotkeeper, weights 2 to 6"
    weights: ClassVar[Sequence[int]] = range(2, 7)

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        # As many of the heaviest fit as of weight 1.
        super().__init__(dynamodb, table, holders, holders + (limit - holders) * max(self.weights))

    def candidate(self, me: str) -> Candidate:
        return Candidate(PROCESS, me, weight=random.choice(self.weights), delivery=delivery(me))


class Floor(Design):
    """Three bare writes of an item of the same size, without a condition: the lower bound of three writes."""

    title = "bare writes"

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=item_with_tombstone(self.holders))

    def steps(self) -> Sequence[Step]:
        return (self._write,) * 3

    def _write(self, _: str) -> None:
        self.update(PROCESS, "SET slots_in_use = slots_in_use + :one", {":one": {"N": "1"}})


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
        return (self._acquire, self._release)

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
        return (self._reserve, self._confirm, self._release)

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
