"""Which executions that closed without success have had their request accounted for.

Step Functions has no place to note it, and every round of the janitor sees the same closed executions for two weeks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# How far back the janitor looks, in seconds: as long as RequestQueue keeps a message, and as a redrive is possible.
HORIZON = 14 * 86400
# An entry outlives the horizon by a week, since TTL deletes and clocks are not exact.
_KEEP = HORIZON + 7 * 86400

_BATCH = 100  # DynamoDB API Reference, BatchGetItem: at most 100 items


class Settled:
    """The table, with a memory of what this container has seen in it: an entry never changes."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name
        self._known: set[str] = set()

    def missing(self, executions: Iterable[str]) -> set[str]:
        """Those of these executions that have no entry."""
        wanted = sorted(set(executions) - self._known)
        for start in range(0, len(wanted), _BATCH):
            keys = [{"execution_name": {"S": name}} for name in wanted[start : start + _BATCH]]
            answer = self._dynamodb.batch_get_item(
                RequestItems={
                    self._table_name: {
                        "Keys": keys,
                        "ProjectionExpression": "execution_name",
                        "ConsistentRead": True,
                    }
                }
            )
            # Unprocessed keys count as missing for now: the caller looks again before it acts.
            self._known.update(item["execution_name"]["S"] for item in answer["Responses"].get(self._table_name, []))
        return set(wanted) - self._known

    def has(self, execution: str) -> bool:
        return not self.missing([execution])

    def add(self, execution: str, by: str, now: float) -> bool:
        """Notes an execution as settled; False if it was already. `by`: who kept the request, workflow or janitor."""
        try:
            self._dynamodb.put_item(
                TableName=self._table_name,
                Item={
                    "execution_name": {"S": execution},
                    "settled_by": {"S": by},
                    "settled_at": {"N": str(int(now))},
                    "expires_at": {"N": str(int(now) + _KEEP)},
                },
                ConditionExpression="attribute_not_exists(execution_name)",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        self._known.add(execution)
        return True
