"""Slotkeeper's cycle, in which one execution reserves, confirms and releases a slot, and its lower bound."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from slotkeeper.slots import protocol
from slotkeeper.slots.protocol import Candidate, Granted, Slots
from slotkeeper.slots.request import DEFAULT_PRIORITY, Delivery
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
            AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
        )

    def update(self, expression: str, values: dict[str, Any], **more: Any) -> Any:
        return self.dynamodb.update_item(
            TableName=self.table,
            Key={"process_name": {"S": PROCESS}},
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
            protocol.CONFIRM_UPDATE,
            {":running": {"S": "RUNNING"}, ":none": {"M": {}}},
            ConditionExpression=protocol.CONFIRM_CONDITION,
            ExpressionAttributeNames={"#me": me, "#state": "state"},
        )

    def _release(self, me: str) -> None:
        self.update(
            protocol.RELEASE_UPDATE,
            {":one": {"N": "1"}},
            ConditionExpression=protocol.RELEASE_CONDITION,
            ExpressionAttributeNames={"#me": me},
        )


class Floor(Design):
    """Three bare writes of an item of the same size, without a condition: the lower bound of three writes."""

    title = "bare writes"

    def set_up(self) -> None:
        self.dynamodb.put_item(TableName=self.table, Item=item_with_tombstone(self.holders))

    def steps(self) -> Sequence[Step]:
        return (self._write,) * 3

    def _write(self, _: str) -> None:
        self.update("SET slots_in_use = slots_in_use + :one", {":one": {"N": "1"}})
