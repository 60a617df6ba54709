"""A lease that allows one run of the janitor at a time.

The lease is the item "#run" of SettledTable, with a code and an end. A run takes it by one conditional write and
returns it when it ends. If a run is killed, its lease ends when Lambda would have stopped it: at the invocation's
deadline plus CLOCK_SKEW.

Overlapping runs would be safe, because each step is conditional. But they would do the same work twice and use the same
quotas. Reserved concurrency of 1 has the same effect, but an account with a concurrency limit of 10 cannot reserve any
(Lambda API Reference, PutFunctionConcurrency).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Table, Write

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CLOCK_SKEW = 5  # seconds
_KEY = {"execution_name": {"S": "#run"}}
TAKE_CONDITION = "attribute_not_exists(execution_name) OR held_until < :now"
RETURN_CONDITION = "code = :code"


class RunLease:
    """Held by at most one invocation. Errors of DynamoDB itself pass through as ClientError or BotoCoreError.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        clock: Callable[[], float] = time.time,
        new_code: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")
        self._clock = clock
        self._new_code = new_code
        self._code = ""

    def take(self, seconds_left: float) -> bool:
        """Take the lease; False if another run holds it.

        Args:
            seconds_left: seconds until Lambda stops this invocation.
        """
        now = self._clock()
        self._code = self._new_code()
        write = self._put(now + seconds_left + CLOCK_SKEW, TAKE_CONDITION, {":now": _number(now)})
        # After a lost answer botocore retries the call, and the item that it wrote itself refuses the retry.
        return write.held or write.item.get("code") == {"S": self._code}

    def release(self) -> None:
        """Return the lease, if this run still holds it."""
        self._put(0, RETURN_CONDITION, {":code": {"S": self._code}})

    def _put(self, until: float, condition: str, values: dict[str, Any]) -> Write:
        return self._table.put({**_KEY, "code": {"S": self._code}, "held_until": _number(until)}, condition, values)


def _number(seconds: float) -> dict[str, str]:
    return {"N": str(int(seconds))}
