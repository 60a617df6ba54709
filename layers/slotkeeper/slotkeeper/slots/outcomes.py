"""Records how the work of a request has ended, in its row of RequestTable: the first outcome stays.

The workflow records its outcome itself, before it releases its slot (statemachines/slot_workflow.asl.json, state
RecordOutcome). Its expressions are repeated here, and a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotkeeper.aws.dynamodb import Item, Table, number

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Of a failure, in characters. With a body of 64 KiB, also of characters of four bytes, a row is below the 400 KB of an
# item (DynamoDB guide, "Quotas").
MAX_CODE, MAX_CAUSE = 256, 30_000

# `open` below 0: its end must be published. One that a redriven execution records again does not expire before.
SUCCESS_UPDATE = (
    "SET #state = :end, ended = :now, #open = :unpublished "
    "REMOVE place, deadline, expires, body, code, cause, reason, failed, published"
)
SUCCESS_WITH_ANSWER_UPDATE = SUCCESS_UPDATE.replace(" REMOVE", ", answer = :answer REMOVE")
# A redriven execution may find that work which was recorded as failed has succeeded after all.
SUCCESS_CONDITION = "#state IN (:queued, :started, :failed)"
FAILURE_UPDATE = (
    "SET #state = :end, ended = :now, #open = :unpublished, failed = :now, code = :code, cause = :cause "
    "REMOVE place, deadline, expires, published"
)
# The workflow records the error of the work, which that of the execution must not replace.
FAILURE_CONDITION = "#state IN (:queued, :started)"
_NAMES = {"#state": "state", "#open": "open"}


class Outcomes:
    """Records outcomes. Each method returns False, without effect, if the request has ended otherwise, or has no row.

    Errors of DynamoDB pass through as ClientError or BotoCoreError. Times are in seconds since the epoch.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name", "execution")

    def succeeded(self, process: str, execution: str, now: float, answer: str = "") -> bool:
        """Record a success. `answer`: for the caller, JSON; "" if it is not known."""
        update = SUCCESS_WITH_ANSWER_UPDATE if answer else SUCCESS_UPDATE
        values = _values("SUCCEEDED", now) | {":failed": {"S": "FAILED"}}
        values |= {":answer": {"S": answer}} if answer else {}
        return self._table.update((process, execution), update, SUCCESS_CONDITION, values, _NAMES).held

    def failed(self, process: str, execution: str, now: float, code: str, cause: str) -> bool:
        """Record a failure, its code and cause cut as the workflow cuts them."""
        values = _values("FAILED", now) | {":code": {"S": code[:MAX_CODE]}, ":cause": {"S": cause[:MAX_CAUSE]}}
        return self._table.update((process, execution), FAILURE_UPDATE, FAILURE_CONDITION, values, _NAMES).held


def _values(end: str, now: float) -> Item:
    return {
        ":queued": {"S": "QUEUED"},
        ":started": {"S": "STARTED"},
        ":end": {"S": end},
        ":now": number(now),
        ":unpublished": number(-now),
    }
