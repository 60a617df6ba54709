"""RequestTable: one row per request and attempt, from its acceptance to the end of its retention.

    process_name   S, key
    execution      S, sort key: the name of its workflow execution, made of process, request id, attempt and caller
    state          S: QUEUED, STARTED, SUCCEEDED, FAILED, SKIPPED, TOO_LATE, CANCELLED, REJECTED, RETURNED or REDRIVEN
    request_id     S
    attempt        N
    message_id     S: of the message that brought it; a redelivery has the same one
    digest         S: of its content, by which a repeated request differs from another one with the same id
    body           S: the request without its task token, which is the input of its execution
    task_token     S, optional: of the caller that waits for its answer
    priority       S
    weight         N, optional: as the request states it
    skips          BOOL, optional: it leaves the queue if it cannot start
    start_before   N, optional: seconds since the epoch
    sent           N: when its message was sent, in seconds since the epoch
    place          S, while it is queued and its start is not marked: its place in the queue
    placed         S: the place that it has or had, or would have had; it contains the key (queued.py)
    deadline       N, with `place`, if it skips or has a `start_before`: from when on it may have to leave the queue
    open           N, until its end was published: when it was accepted; once it has ended, that time below 0
    granted        S, once its start is marked: the value of the process's `grants`, and its number in the grant; empty
                   if the starter that granted it has died
    put_back       N, once a reservation was taken back: the value of `grants` from which its order counts
    started, ended N: seconds since the epoch
    code           S: why it did not succeed; of FAILED the error of its work
    reason         S: the same in words; of FAILED once its end was published
    cause          S, of FAILED: as Step Functions or Glue gives it
    answer         S, of SUCCEEDED, JSON: for the caller that waits, until the end was published
    failed         N, of FAILED, REJECTED and TOO_LATE, until it is redriven or discarded: when it ended
    published      N, after a step of its publication failed: the number of steps before it, which are done (endings.py)
    expires        N, once its end was published: when DynamoDB deletes the row

Four local indexes contain a part of the rows: `place` the queue in its order, `deadline` what may have to leave it,
`open` what has not ended, or whose end was not published, and `ended` the history. Reads of them are consistent
(DynamoDB guide, "Local secondary indexes"). Two global indexes are of all processes: `failed` contains the failures,
and `request_id` the keys of each request's attempts. They are late by less than a second as a rule (DynamoDB guide,
"Using Global Secondary Indexes in DynamoDB").

A request leaves the queue in three ways, each under the condition that it is QUEUED with a place: its start is marked,
it ends without a start, or its work has already ended. The second also requires, in the same transaction, that the
process has no holder of it, and changes `grants`: so no grant that was planned before can succeed after it.

outcomes.py records how the work of a request has ended, and endings.py publishes each end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table, number, transact
from slotkeeper.slots.queued import QUEUE_END, QUEUE_START, Queued, QueuePart, key_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

State = Literal[
    "QUEUED",
    "STARTED",
    "SUCCEEDED",
    "FAILED",
    "SKIPPED",
    "TOO_LATE",
    "CANCELLED",
    "REJECTED",
    "RETURNED",
    "REDRIVEN",
]
End = Literal["SKIPPED", "TOO_LATE", "CANCELLED", "REJECTED"]
ENDED_WITHOUT_START: tuple[State, ...] = ("SKIPPED", "TOO_LATE", "CANCELLED", "REJECTED")
# Its message is for an operator.
FAILURES: tuple[State, ...] = ("FAILED", "REJECTED", "TOO_LATE")
# In one transaction, whose items may have 4 MB together (API Reference, TransactWriteItems): a row has up to 70 KB with
# its body and a task token, and the process's item up to 400 KB.
MAX_LEAVES = 50

QUEUED = "#state = :queued AND attribute_exists(place)"
MARK_UPDATE = "SET #state = :started, started = :now, granted = :granted REMOVE place, deadline"
# `open` below 0: its end must be published, which one query finds.
END_UPDATE = (
    "SET #state = :end, ended = :now, #open = :unpublished, code = :code, reason = :reason{failed} "
    "REMOVE place, deadline"
)
LEAVE_PROCESS_UPDATE = "SET grants = grants + :one"
REFUSE_PROCESS_UPDATE = (
    "SET grants = grants + :one, slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one) "
    "REMOVE holders.#me"
)
REFUSE_PROCESS_CONDITION = "holders.#me.#state = :reserved"
LEAVE_CONDITION = "attribute_exists(process_name) AND {absent}"
NO_TARGET_CONDITION = "target = :none AND {absent}"
NO_PROCESS_CONDITION = "attribute_not_exists(process_name)"


@dataclass(frozen=True)
class Leaving:
    """A request that ends without a start. `code` and `reason` are for its sender."""

    execution: str
    end: End
    code: str
    reason: str


@dataclass(frozen=True)
class QueuedBody:
    """The parts of a row that a dispatch reads before it starts the request.

    Attributes:
        text: the input of the execution.
        sent: seconds since the epoch.
        accepted: seconds since the epoch; None or below 0 if the row has ended.
        key: "" for none.
    """

    state: State
    text: str
    sent: float
    priority: str
    accepted: float | None = None
    key: str = ""


def granted_as(grants: int, number: int) -> str:
    """The order of grants as text that sorts: the value of `grants` after it, and the number in its write."""
    return f"{grants:016}#{number:02}"


class RequestTable:
    """RequestTable, and the process's item where one transaction writes both.

    Errors of DynamoDB pass through as ClientError or BotoCoreError.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, slot_table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table = Table(dynamodb, table_name, "process_name", "execution")
        self._slots = Table(dynamodb, slot_table_name, "process_name")

    def add(self, row: Item) -> Attributes | None:
        """Add a row; if its execution has one already, return that one."""
        write = self._table.put(row, "attribute_not_exists(execution)")
        if write.held:
            return None
        return Attributes(write.item or self._table.read((row["process_name"]["S"], row["execution"]["S"])))

    def queue(self, process: str, slot_limit: int, after: str = QUEUE_START, most: int | None = None) -> QueuePart:
        """The part of the queue behind a place, without most requests whose weight is above the limit.

        Args:
            most: the number of requests to read. None: 1 MB.
        """
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "IndexName": "place",
            "ConsistentRead": True,
            "KeyConditionExpression": "process_name = :process AND place > :after",
            "FilterExpression": "attribute_not_exists(weight) OR weight <= :limit",
            "ExpressionAttributeValues": {
                ":process": {"S": process},
                ":after": {"S": after},
                ":limit": number(slot_limit),
            },
        }
        answer = self._dynamodb.query(**request if most is None else {**request, "Limit": most})
        read = answer.get("LastEvaluatedKey", {}).get("place", {}).get("S", QUEUE_END)
        return QueuePart(list(_read_all(answer["Items"])), after, read)

    def due(self, process: str, until: float) -> list[Queued]:
        """The first requests that may have to leave the queue before a time: those that skip, and the late ones."""
        answer = self._dynamodb.query(
            TableName=self._table.name,
            IndexName="deadline",
            ConsistentRead=True,
            KeyConditionExpression="process_name = :process AND deadline <= :until",
            ExpressionAttributeValues={":process": {"S": process}, ":until": number(until)},
            Limit=MAX_LEAVES,
        )
        return list(_read_all(answer["Items"]))

    def bodies(self, process: str, executions: Sequence[str]) -> dict[str, QueuedBody | None]:
        """The body of each row, read consistently; None if there is no row. One that was not read is missing.

        DynamoDB leaves keys unprocessed under load (API Reference, BatchGetItem).
        """
        if not executions:
            return {}
        answer = self._dynamodb.batch_get_item(
            RequestItems={
                self._table.name: {
                    "Keys": [self._table.key((process, execution)) for execution in executions],
                    "ConsistentRead": True,
                    "ProjectionExpression": "execution, #state, body, sent, priority, #open, placed",
                    "ExpressionAttributeNames": {"#state": "state", "#open": "open"},
                }
            }
        )
        rows = [Attributes(item) for item in answer["Responses"].get(self._table.name, [])]
        found = {
            row.text("execution"): QueuedBody(
                row.parsed("state", read_state),
                row.text("body", ""),
                row.number("sent"),
                row.text("priority"),
                row.number("open", None),
                key_of(row.text("placed", "")),
            )
            for row in rows
        }
        unread = answer["UnprocessedKeys"][self._table.name]["Keys"] if answer.get("UnprocessedKeys") else []
        missing = {key["execution"]["S"] for key in cast(list[Item], unread)}
        return {name: found.get(name) for name in executions if name not in missing}

    def mark_started(self, process: str, execution: str, granted: str, now: float) -> bool:
        """Note a start; False if the request is not queued any more: its work may have ended already."""
        values: Item = {
            ":queued": {"S": "QUEUED"},
            ":started": {"S": "STARTED"},
            ":now": number(now),
            ":granted": {"S": granted},
        }
        return self._table.update((process, execution), MARK_UPDATE, QUEUED, values, {"#state": "state"}).held

    def note_put_back(self, process: str, execution: str, grants: int) -> None:
        """Note the value of `grants` from which the order of a queued request counts: its slot was taken back then."""
        values: Item = {":queued": {"S": "QUEUED"}, ":grants": number(grants)}
        self._table.update((process, execution), "SET put_back = :grants", QUEUED, values, {"#state": "state"})

    def leave(self, process: str, leavings: Sequence[Leaving], now: float) -> list[Leaving]:
        """End queued requests without a start, in one transaction. Returns those that have ended so.

        A request that was granted a slot, started or ended meanwhile is left as it is, and the rest tried again.
        """
        return self._end(process, leavings, now, LEAVE_CONDITION)

    def end_homeless(self, process: str, leavings: Sequence[Leaving], now: float, *, exists: bool) -> list[Leaving]:
        """As `leave`, of a process that has no target, or does not exist, and if that is still so."""
        return self._end(process, leavings, now, NO_TARGET_CONDITION if exists else NO_PROCESS_CONDITION)

    def refuse(self, process: str, leaving: Leaving, now: float) -> bool:
        """End a queued request whose start was refused for good, and free its reservation, in one transaction.

        False if it is not queued any more, or its slot was confirmed or freed meanwhile.
        """
        names = {"#me": leaving.execution, "#state": "state"}
        values: Item = {":one": number(1), ":reserved": {"S": "RESERVED"}}
        holder = self._of_process(process, REFUSE_PROCESS_CONDITION, REFUSE_PROCESS_UPDATE, values, names)
        return not transact(self._dynamodb, [self._of_row(process, leaving, now), holder])

    def _end(self, process: str, leavings: Sequence[Leaving], now: float, condition: str) -> list[Leaving]:
        left = list(leavings)[:MAX_LEAVES]
        while left:
            parts = [self._of_row(process, each, now) for each in left]
            refused = transact(self._dynamodb, [*parts, self._without_holders(process, left, condition)])
            if not refused:
                return left
            holders = Attributes(refused[-1].item).map("holders", Attributes({})).raw
            changed = {each.execution for each, part in zip(left, refused, strict=False) if part.code != "None"}
            kept = [each for each in left if each.execution not in changed and each.execution not in holders]
            if kept == left:  # the process itself has changed
                return []
            left = kept
        return []

    def _without_holders(self, process: str, leavings: Sequence[Leaving], condition: str) -> Any:
        """The part of a transaction that changes `grants`, if the process has none of these holders."""
        if condition == NO_PROCESS_CONDITION:
            return self._slots.check_part(process, condition)
        names = {f"#n{at}": each.execution for at, each in enumerate(leavings)}
        absent = " AND ".join(f"attribute_not_exists(holders.{name})" for name in names)
        values: Item = {":one": number(1)} | ({":none": {"S": "none"}} if ":none" in condition else {})
        return self._of_process(process, condition.format(absent=absent), LEAVE_PROCESS_UPDATE, values, names)

    def _of_row(self, process: str, leaving: Leaving, now: float) -> Any:
        values: Item = {
            ":queued": {"S": "QUEUED"},
            ":end": {"S": leaving.end},
            ":now": number(now),
            ":unpublished": number(-now),
            ":code": {"S": leaving.code},
            ":reason": {"S": leaving.reason},
        }
        update = END_UPDATE.format(failed=", failed = :now" if leaving.end in FAILURES else "")
        names = {"#state": "state", "#open": "open"}
        return self._table.update_part((process, leaving.execution), update, QUEUED, values, names)

    def _of_process(self, process: str, condition: str, update: str, values: Item, names: Mapping[str, str]) -> Any:
        returned = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return self._slots.update_part(process, update, condition, values, names, **returned)


def _read_all(items: Iterable[Item]) -> Iterator[Queued]:
    """Parse entries of an index. A malformed one waits, and the janitor reports it; the others must not wait for it."""
    for item in items:
        with suppress(MalformedAttribute):
            yield read_queued(item)


def read_queued(item: Item) -> Queued:
    """Parse an entry of the index `place` or `deadline`, in DynamoDB's format. Raises MalformedAttribute."""
    entry = Attributes(item)
    return Queued(
        execution=entry.text("execution"),
        place=entry.text("place"),
        weight=entry.whole("weight", None),
        start_before=entry.number("start_before", None),
        skips=entry.flag("skips", False),
    )


def read_state(text: str) -> State:
    """Parse the state of a row. Raises ValueError."""
    states = get_args(State)
    if text not in states:
        raise ValueError(f"must be one of {', '.join(states)}, got {text!r}")
    return cast(State, text)
