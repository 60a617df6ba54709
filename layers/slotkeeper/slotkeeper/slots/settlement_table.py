"""SettledTable: the executions that closed without success and whose request is settled.

    execution_name  S, key: the execution's name; after a redrive with its count, "name#1" (Execution.closing)
    settled_at      N: when the request was settled
    settled_by      S: who kept the request or returned it to the queue: workflow or janitor
    claimed_until   N, only without settled_at: until then one function may keep the request, and no other
    unanswered      M, only without settled_at: the request is kept or has succeeded, but its caller has no answer yet:
                    {has_succeeded, task_token, target, glue_run_id}
    expires_at      N: DynamoDB's TTL

Two further items are shared by the janitor's runs: "#settled-by" (this module) and "#run" (run_lease.py). An execution
name cannot contain "#". Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# How far back the janitor lists executions, in seconds: as long as RequestQueue keeps a message, and as Step Functions
# allows a redrive.
HORIZON_SECONDS = 14 * 86400
# An entry outlives the horizon by a week, because TTL deletions and clocks are not exact.
_KEEP = HORIZON_SECONDS + 7 * 86400
# Seconds. Longer than the claim's owner needs to keep a request, publish the event and record both, each call with all
# its attempts (functions/janitor/app.py); shorter than the time between two runs of the janitor.
CLAIM_SECONDS = 45

CLAIM_CONDITION = "attribute_not_exists(execution_name) OR (attribute_not_exists(settled_at) AND claimed_until <= :now)"
_BATCH = 100  # DynamoDB API Reference, BatchGetItem: at most 100 items
_SETTLED_BY = "#settled-by"
_TEXTS = ("task_token", "target", "glue_run_id")  # of Unanswered


@dataclass(frozen=True)
class Unanswered:
    """A request that is accounted for, and whose caller is not answered yet.

    Attributes:
        task_token: as the holder contained it; "" if no holder was left.
        target: what ran in its slot; "" if that is unknown.
        glue_run_id: the Glue run that has succeeded; "" for another target.
    """

    has_succeeded: bool
    task_token: str = field(default="", repr=False)
    target: str = ""
    glue_run_id: str = ""


class SettlementTable:
    """Reads and writes SettledTable. It caches settled entries, which never change.

    Args:
        claim: seconds for which a claim prevents other functions from keeping the same request.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, claim: float = CLAIM_SECONDS) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")
        self._claim = claim
        self._known: set[str] = set()

    def missing(self, closings: Iterable[str]) -> set[str]:
        """Return those of these ends of executions that are not settled."""
        wanted = sorted(set(closings) - self._known)
        for start in range(0, len(wanted), _BATCH):
            items = self._read(wanted[start : start + _BATCH], "execution_name, settled_at")
            # Unprocessed keys count as missing; `claim` then fails for the settled ones.
            self._known.update(item["execution_name"]["S"] for item in items if "settled_at" in item)
        return set(wanted) - self._known

    def has(self, closing: str) -> bool:
        return not self.missing([closing])

    def claim(self, closing: str, now: float, unanswered: Unanswered | None = None) -> bool:
        """Claim the right to keep a request; False if it is settled, or claimed by another caller.

        If the caller fails afterwards, its claim ends after `claim` seconds, and the next caller keeps the request.

        Args:
            unanswered: as it was read, so that the claim preserves it.
        """
        # Otherwise the claim of a function that read earlier would drop what was noted since.
        condition = CLAIM_CONDITION if unanswered else f"({CLAIM_CONDITION}) AND attribute_not_exists(unanswered)"
        return self._put_claim(closing, now + self._claim, now, unanswered, condition, {":now": _number(now)})

    def unanswered(self, closing: str) -> Unanswered | None:
        """Read what `note_unanswered` has recorded; None if nothing, or if the item is not of the documented types."""
        items = self._read([closing], "unanswered")
        try:
            noted = Attributes(items[0] if items else {}).map("unanswered", None)
            if noted is None:
                return None
            texts = (noted.text(name, "") for name in _TEXTS)
            return Unanswered(noted.flag("has_succeeded"), *texts)
        except MalformedAttribute:
            return None

    def note_unanswered(self, closing: str, unanswered: Unanswered, now: float) -> bool:
        """Record that only the answer is missing; False if the request is settled.

        The claim continues, so that each janitor run tries the answer once.
        """
        return self._put_claim(closing, now + self._claim, now, unanswered, "attribute_not_exists(settled_at)")

    def _put_claim(
        self,
        closing: str,
        until: float,
        now: float,
        unanswered: Unanswered | None,
        condition: str,
        values: Item | None = None,
    ) -> bool:
        item: Item = {"claimed_until": _number(until), "expires_at": _number(now + _KEEP)}
        if unanswered is not None:
            noted = {"has_succeeded": {"BOOL": unanswered.has_succeeded}}
            item["unanswered"] = {
                "M": noted | {name: {"S": text} for name in _TEXTS if (text := getattr(unanswered, name))}
            }
        return self._table.put({"execution_name": {"S": closing}, **item}, condition, values).held

    def add(self, closing: str, by: str, now: float) -> bool:
        """Record a request as settled by `by`, workflow or janitor; False if it was settled already."""
        item = {"settled_by": {"S": by}, "settled_at": _number(now), "expires_at": _number(now + _KEEP)}
        added = self._table.put({"execution_name": {"S": closing}, **item}, "attribute_not_exists(settled_at)")
        self._known.add(closing)
        return added.held

    def settled_by(self) -> float | None:
        """Read the time up to which every execution that had ended is settled, epoch seconds; None if not recorded."""
        items = self._read([_SETTLED_BY], "settled_by")
        return float(items[0]["settled_by"]["N"]) if items else None

    def note_settled_by(self, moment: float) -> None:
        """Record that time for the janitor's next containers, which then do not list 14 days."""
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
