"""What the benchmark compares: Slotkeeper's lease, two locks used as semaphores, and two bare writes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from dev.benchmarks.slot_cycle.counter_designs import PROCESS, Design, Floor, Step, item_with_tombstones
from dev.benchmarks.slot_cycle.lock_client import LockClient
from slotkeeper.slots.leases import Leases

LEASE_SECONDS = 60


class SlotLease(Design):
    """The layer's code: one item for all holders."""

    title = "lease"

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._leases = Leases(table, dynamodb, owner="benchmark")

    def set_up(self) -> None:
        item = item_with_tombstones(self.holders) | {"slot_limit": {"N": str(self.limit)}}
        self.dynamodb.put_item(TableName=self.table, Item=item)

    def steps(self) -> Sequence[Step]:
        return (("take and release", self._cycle),)

    def _cycle(self, _: str) -> None:
        with self._leases.lease(PROCESS, seconds=LEASE_SECONDS, wait=LEASE_SECONDS):
            pass


class BareWrites(Floor):
    """Two writes of an item of the same size, without a condition: the lower bound of taking and releasing."""

    title = "two bare writes"
    writes = 2


class RecordLock(Design):
    """A record per key with an expiry, put on the condition that none is valid: N keys, tried in random order.

    The condition is that with which Powertools' idempotency saves a record as in progress (Powertools for AWS Lambda,
    "Idempotency", DynamoDBPersistenceLayer). It is the form of Redis' SET NX with an expiry. Releasing deletes the
    record, which Powertools does after an exception; it has no owner, so a late owner deletes the record of the next.
    """

    title = "record lock"
    key: ClassVar[str] = "id"

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._held: dict[str, str] = {}

    def set_up(self) -> None:
        self.put_all([self._record(self._key(number), time.time() + 3600) for number in range(self.holders)])

    def steps(self) -> Sequence[Step]:
        return (("take", self._take), ("release", self._release))

    def _take(self, me: str) -> None:
        while True:
            for number in random.sample(range(self.limit), self.limit):
                if self._put(key := self._key(number)):
                    self._held[me] = key
                    return

    def _put(self, key: str) -> bool:
        now = time.time()
        try:
            self.dynamodb.put_item(
                TableName=self.table,
                Item=self._record(key, now + LEASE_SECONDS),
                ConditionExpression=(
                    "attribute_not_exists(#id) OR #expiry < :now OR (#status = :in_progress "
                    "AND attribute_exists(#in_progress_expiry) AND #in_progress_expiry < :now_in_millis)"
                ),
                ExpressionAttributeNames={
                    "#id": "id",
                    "#expiry": "expiration",
                    "#in_progress_expiry": "in_progress_expiration",
                    "#status": "status",
                },
                ExpressionAttributeValues={
                    ":now": {"N": str(int(now))},
                    ":now_in_millis": {"N": str(int(now * 1000))},
                    ":in_progress": {"S": "INPROGRESS"},
                },
            )
        except self.dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _release(self, me: str) -> None:
        self.dynamodb.delete_item(TableName=self.table, Key={"id": {"S": self._held.pop(me)}})

    def _record(self, key: str, until: float) -> dict[str, Any]:
        return {
            "id": {"S": key},
            "expiration": {"N": str(int(until) + 3600)},
            "in_progress_expiration": {"N": str(int(until * 1000))},
            "status": {"S": "INPROGRESS"},
        }

    def _key(self, number: int) -> str:
        return f"{PROCESS}-{number}"


DESIGNS: dict[str, type[Design]] = {
    "lease": SlotLease,
    "bare-writes": BareWrites,
    "record-lock": RecordLock,
    "lock-client": LockClient,
}
