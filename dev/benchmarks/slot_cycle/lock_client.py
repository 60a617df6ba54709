"""python-dynamodb-lock as a semaphore: N lock keys, of which a client takes one that is free.

It is a lock, so which key is free has to be tried: each key once, in an order drawn by chance, so that not all meet at
the same one. A client keeps what it holds alive by heartbeats, a write every five seconds for each lock, from a thread
of its own: in a cycle without a job there are none, and the figures say what they come to.
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

# It tries again unless the first pause would end later than this: zero stands for its default.
ONCE = timedelta(microseconds=1)


class LockClient(Design):
    """A client for each process, as its documents have it, for all threads of the process."""

    title = "lock client"
    _clients: ClassVar[dict[tuple[str, str], DynamoDBLockClient]] = {}
    _thread_lock = threading.Lock()

    def __init__(self, dynamodb: Any, table: str, holders: int, limit: int) -> None:
        super().__init__(dynamodb, table, holders, limit)
        self._held: dict[str, DynamoDBLock] = {}

    def create(self) -> None:
        DynamoDBLockClient.create_dynamodb_table(self.dynamodb, self.table)

    def set_up(self) -> None:
        """Others hold the keys of the standing holders; a single try takes nobody for dead, so they need no heart."""
        self.put_all([self._lock(number) for number in range(self.holders)])

    def steps(self) -> Sequence[Step]:
        return (("reserve", self._acquire), ("release", self._release))

    def full(self, me: str) -> None:
        if self._try_all(me):
            raise AssertionError("a key was free")

    def _acquire(self, me: str) -> None:
        # A key that was tried may have become free behind us: with room for all, some key is.
        while not self._try_all(me):
            continue

    def _try_all(self, me: str) -> bool:
        for number in random.sample(range(self.limit), self.limit):
            with self._thread_lock:
                self.tries += 1
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
