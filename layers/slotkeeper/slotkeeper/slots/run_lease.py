"""One run of the janitor at a time: a lease that ends, at the latest, when Lambda stops the invocation.

An item of SettledTable, "#run", with the lease's code and its end. A run takes it by one conditional write and returns
it when it ends. A run that is killed leaves it, and the next run can take it once Lambda would have stopped the first
one: the bound is the invocation's own deadline, and two clocks' difference.

Runs that overlapped would harm nothing, since each step is conditional; they would do the same work twice, at the same
quotas, and be late together. Reserved concurrency of 1 would do the same, but an account with a concurrency limit of 10
refuses any (Lambda API Reference, PutFunctionConcurrency).
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
        """Takes the lease; False if another run holds it.

        Args:
            seconds_left: until Lambda stops this invocation.
        """
        now = self._clock()
        self._code = self._new_code()
        write = self._put(now + seconds_left + CLOCK_SKEW, TAKE_CONDITION, {":now": _number(now)})
        # The SDK repeats a call whose answer was lost, and is then refused by its own first attempt.
        return write.held or write.item.get("code") == {"S": self._code}

    def release(self) -> None:
        """Returns the lease, if it is still this run's."""
        self._put(0, RETURN_CONDITION, {":code": {"S": self._code}})

    def _put(self, until: float, condition: str, values: dict[str, Any]) -> Write:
        return self._table.put({**_KEY, "code": {"S": self._code}, "held_until": _number(until)}, condition, values)


def _number(seconds: float) -> dict[str, str]:
    return {"N": str(int(seconds))}
