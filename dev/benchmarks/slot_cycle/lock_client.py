"""python-dynamodb-lock as a semaphore: N lock keys, of which a client acquires a free one.

The client tries the keys in random order, so that contenders do not meet at the same key. A thread of the client sends
a heartbeat, a write every five seconds for each lock. A cycle without a job has none.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLock, DynamoDBLockClient, DynamoDBLockError

from dev.benchmarks.slot_cycle.counter_designs import PROCESS, Design, Step
from dev.emulator.local_clients import local_resource

# The client does not retry if its first pause would be longer than this. Zero means its default.
ONCE = timedelta(microseconds=1)


class LockClient(Design):
    """One client per process for all its threads, as its documentation recommends."""

    title = "lock client"
    _clients: ClassVar[dict[tuple[str, str], DynamoDBLockClient]] = {}
    _thread_lock = threading.Lock()

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._held: dict[str, DynamoDBLock] = {}

    def create(self) -> None:
        DynamoDBLockClient.create_dynamodb_table(self.dynamodb, self.table)

    def set_up(self) -> None:
        """Write the holders' locks. They need no heartbeats: a single try does not find an owner dead."""
        self.put_all([self._lock(number) for number in range(self.holders)])
        for number in range(self.holders, self.limit):  # held by more holders before
            key = {"lock_key": {"S": self._key(number)}, "sort_key": {"S": "-"}}
            self.dynamodb.delete_item(TableName=self.table, Key=key)

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._acquire), ("release", self._release))

    def full(self, me: str) -> None:
        if self._try_all(me):
            raise AssertionError("a key was free")

    def _acquire(self, me: str) -> None:
        # A key may have become free after it was tried. Some key is free, since there are enough for all.
        while not self._try_all(me):
            continue

    def _try_all(self, me: str) -> bool:
        for number in random.sample(range(self.limit), self.limit):
            try:
                self._held[me] = self._client().acquire_lock(self._key(number), retry_timeout=ONCE)
            except DynamoDBLockError as error:
                if error.code != DynamoDBLockError.ACQUIRE_TIMEOUT:
                    raise
            else:
                return True
        return False

    def _release(self, me: str) -> None:
        self._client().release_lock(self._held.pop(me), best_effort=False)

    def _client(self) -> DynamoDBLockClient:
        where = (self.dynamodb.meta.endpoint_url, self.table)
        with self._thread_lock:
            if where not in self._clients:
                resource = local_resource("dynamodb", where[0])
                self._clients[where] = DynamoDBLockClient(resource, self.table)
            return self._clients[where]

    def _lock(self, number: int) -> dict[str, Any]:
        return {
            "lock_key": {"S": self._key(number)},
            "sort_key": {"S": "-"},
            "owner_name": {"S": "another"},
            "lease_duration": {"N": "30"},
            "record_version_number": {"S": str(uuid.uuid4())},
            "expiry_time": {"N": str(int(time.time()) + 3600)},
        }

    def _key(self, number: int) -> str:
        return f"{PROCESS}-{number}"
