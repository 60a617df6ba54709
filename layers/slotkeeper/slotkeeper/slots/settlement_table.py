"""Which executions that closed without success have had their request accounted for.

    execution_name  S, key: the execution's name; after a redrive with its count, "name#1" (workflow.closing)
    settled_at      N: the request is accounted for, by `settled_by` (workflow or janitor)
    claimed_until   N: without a settled_at: a function is about to keep the request, and no other does until then
    expires_at      N: DynamoDB's TTL

Two further items hold what the janitor's runs share: "#settled-by" here, "#run" in run_lease.py. No execution name
contains "#". Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# How far back the janitor looks, in seconds: as long as RequestQueue keeps a message, and as a redrive is possible.
HORIZON_SECONDS = 14 * 86400
# An entry outlives the horizon by a week, since TTL deletes and clocks are not exact.
_KEEP = HORIZON_SECONDS + 7 * 86400
# Longer than a claim's owner needs to keep a request, to publish the event and to note both, each call with all its
# attempts (functions/janitor/app.py); shorter than the time between two runs of the janitor.
CLAIM_SECONDS = 45

_BATCH = 100  # DynamoDB API Reference, BatchGetItem: at most 100 items
_SETTLED_BY = "#settled-by"


class SettlementTable:
    """The table, with a memory of what this container has seen in it: an entry never changes.

    Args:
        claim: seconds for which a claim keeps others from keeping the same request.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, claim: float = CLAIM_SECONDS) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")
        self._claim = claim
        self._known: set[str] = set()

    def missing(self, closings: Iterable[str]) -> set[str]:
        """Those of these ends of executions that are not settled."""
        wanted = sorted(set(closings) - self._known)
        for start in range(0, len(wanted), _BATCH):
            items = self._read(wanted[start : start + _BATCH], "execution_name, settled_at")
            # Unprocessed keys count as missing for now: the claim finds out.
            self._known.update(item["execution_name"]["S"] for item in items if "settled_at" in item)
        return set(wanted) - self._known

    def has(self, closing: str) -> bool:
        return not self.missing([closing])

    def claim(self, closing: str, now: float) -> bool:
        """Reserves the keeping of a request for the caller; False if it is settled, or claimed by another caller.

        A caller that fails afterwards leaves its claim, and the first caller after the claim's end keeps the request.
        """
        item = {"claimed_until": _number(now + self._claim), "expires_at": _number(now + _KEEP)}
        return self._table.put(
            {"execution_name": {"S": closing}, **item},
            "attribute_not_exists(execution_name) OR (attribute_not_exists(settled_at) AND claimed_until <= :now)",
            {":now": _number(now)},
        ).held

    def add(self, closing: str, by: str, now: float) -> bool:
        """Notes that a request is accounted for; False if it was already. `by`: who kept it, workflow or janitor."""
        item = {"settled_by": {"S": by}, "settled_at": _number(now), "expires_at": _number(now + _KEEP)}
        added = self._table.put({"execution_name": {"S": closing}, **item}, "attribute_not_exists(settled_at)")
        self._known.add(closing)
        return added.held

    def settled_by(self) -> float | None:
        """The moment up to which every execution that had ended was accounted for; None if none was noted."""
        items = self._read([_SETTLED_BY], "settled_by")
        return float(items[0]["settled_by"]["N"]) if items else None

    def note_settled_by(self, moment: float) -> None:
        """Notes that moment for the janitor's next containers, which then need not list a fortnight."""
        self._table.dynamodb.put_item(
            TableName=self._table.name,
            Item={"execution_name": {"S": _SETTLED_BY}, "settled_by": _number(moment)},
        )

    def _read(self, keys: list[str], attributes: str) -> list[dict[str, Any]]:
        answer = self._table.dynamodb.batch_get_item(
            RequestItems={
                self._table.name: {
                    "Keys": [{"execution_name": {"S": key}} for key in keys],
                    "ProjectionExpression": attributes,
                    "ConsistentRead": True,
                }
            }
        )
        return answer["Responses"].get(self._table.name, [])


def _number(value: float) -> dict[str, str]:
    return {"N": str(int(value))}
