"""The code of intake and dispatch as actors, with a workflow and an operator as they will write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import dynamodb
from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.dispatch import DispatchFailed, Tools, dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.request import Request
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.starts import ReservationStarter, Starts
from tests.simulation.aws.stepfunctions import WORKFLOW
from tests.simulation.transcript import Outside, Program, Question

SLOTS, ROWS, REQUESTS, BELLS = "slots", "requests", "requests.fifo", "bells"
AGE = 32  # seconds: the functions' timeout, and two
VISIBILITY = 180
WORKS = Question("actor", "works", None)

dynamodb.CONFLICT_WAITS = (0,)  # a world's time is not the machine's


def _in_turn[T, R](work: Callable[[T], R], listed: list[T]) -> list[R]:
    return [work(each) for each in listed]


def tools(outside: Outside) -> Tools:
    dynamodb = outside.client("dynamodb")
    grants, rows = Grants(dynamodb, SLOTS), RequestTable(dynamodb, ROWS, SLOTS)
    starter = ReservationStarter(
        Starts(outside.client("stepfunctions"), WORKFLOW),
        grants,
        rows,
        outside.clock,
        each=_in_turn,  # type: ignore[arg-type]
    )
    doorbell = Doorbell(outside.client("sqs"), BELLS)
    return Tools(
        grants, rows, starter, doorbell, AGE, clock=outside.clock, sleep=outside.sleep, jitter=lambda _, high: high
    )


def receive(outside: Outside, messages: tuple[tuple[str, str, int, float, str], ...]) -> str:
    """One invocation of the starter for messages of RequestQueue, each with its id, body, sequence, time and handle."""
    sqs, used = outside.client("sqs"), tools(outside)
    handles, processes, leavers = [], [], False
    for message_id, body, sequence, sent, handle in messages:
        request = Request(arguments={}, **json.loads(body))
        try:
            accept(used.requests, request, message_id, sent, str(sequence), outside.clock())
        except (ClientError, BotoCoreError):
            break
        handles.append(handle)
        processes.append(request.process)
        leavers |= request.when_busy == "skip" or bool(request.start_before)
    outcome = "handled"
    for process in dict.fromkeys(processes):
        try:
            dispatch(used, Bell(process), leavers=leavers)
        except DispatchFailed as failure:
            outcome = "failed"
            at = outside.clock() + failure.again_after if leavers else None
            try:
                used.doorbell.ring(Bell(process, at), failure.again_after)
            except (ClientError, BotoCoreError):
                return "left on the queue"
    for handle in handles:
        try:
            sqs.delete_message(QueueUrl=REQUESTS, ReceiptHandle=handle)
        except (ClientError, BotoCoreError):
            return "left on the queue"
    return outcome


def answer_bell(outside: Outside, body: str, handle: str) -> str:
    """One invocation for a message of DispatchQueue."""
    fields = json.loads(body)
    try:
        dispatch(tools(outside), Bell(fields["process"], at=fields.get("at"), count=fields.get("count", 0)))
        outside.client("sqs").delete_message(QueueUrl=BELLS, ReceiptHandle=handle)
    except (DispatchFailed, ClientError, BotoCoreError):
        return "left on the queue"
    return "handled"


def work(outside: Outside, process: str, execution: str) -> str:
    """The workflow of a request: confirm, work, record the outcome, release, ring."""
    dynamodb = outside.client("dynamodb")
    holder = {"TableName": SLOTS, "Key": {"process_name": {"S": process}}}
    me = {"#me": execution}
    try:
        dynamodb.update_item(
            **holder,
            UpdateExpression="SET holders.#me.#state = :running",
            ConditionExpression="attribute_exists(holders.#me)",
            ExpressionAttributeNames={**me, "#state": "state"},
            ExpressionAttributeValues={":running": {"S": "RUNNING"}},
        )
    except ClientError:
        _return(outside, process, execution)
        _ring(outside, process)
        return "returned"
    outside.ask(WORKS)
    _update(
        dynamodb,
        TableName=ROWS,
        Key={"process_name": {"S": process}, "execution": {"S": execution}},
        UpdateExpression="SET #state = :end REMOVE place, deadline",
        ConditionExpression="#state IN (:queued, :started)",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={
            ":end": {"S": "SUCCEEDED"},
            ":queued": {"S": "QUEUED"},
            ":started": {"S": "STARTED"},
        },
    )
    _update(
        dynamodb,
        **holder,
        UpdateExpression="SET slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one) REMOVE holders.#me",
        ConditionExpression="attribute_exists(holders.#me)",
        ExpressionAttributeNames=me,
        ExpressionAttributeValues={":one": number(1)},
    )
    _ring(outside, process)
    return "succeeded"


def _update(dynamodb: Any, **parameters: Any) -> bool:
    try:
        dynamodb.update_item(**parameters)
    except ClientError:  # its condition: a workflow's calls have no other fault here
        return False
    return True


def _return(outside: Outside, process: str, execution: str) -> None:
    """End a request whose slot was lost, and queue its next attempt at its old place, in one transaction."""
    dynamodb = outside.client("dynamodb")
    key = {"process_name": {"S": process}, "execution": {"S": execution}}
    row = dynamodb.get_item(TableName=ROWS, Key=key, ConsistentRead=True).get("Item")
    if not row or row["state"]["S"] not in ("QUEUED", "STARTED"):
        return
    again = {**row, "execution": {"S": f"{execution}r"}, "state": {"S": "QUEUED"}, "place": row["placed"]}
    ended = {
        "TableName": ROWS,
        "Key": key,
        "UpdateExpression": "SET #state = :end REMOVE place, deadline",
        "ConditionExpression": "#state = :seen",
        "ExpressionAttributeNames": {"#state": "state"},
        "ExpressionAttributeValues": {":end": {"S": "RETURNED"}, ":seen": row["state"]},
    }
    no_holder = {
        "TableName": SLOTS,
        "Key": {"process_name": {"S": process}},
        "UpdateExpression": "SET grants = grants + :one",
        "ConditionExpression": "attribute_not_exists(holders.#me)",
        "ExpressionAttributeNames": {"#me": execution},
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    added = {"TableName": ROWS, "Item": again, "ConditionExpression": "attribute_not_exists(execution)"}
    dynamodb.transact_write_items(TransactItems=[{"Update": ended}, {"Put": added}, {"Update": no_holder}])


def _ring(outside: Outside, process: str) -> None:
    Doorbell(outside.client("sqs"), BELLS).ring(Bell(process))


def cancel(outside: Outside, process: str, execution: str) -> str:
    """An operator cancels a request."""
    rows = RequestTable(outside.client("dynamodb"), ROWS, SLOTS)
    left = rows.leave(process, [Leaving(execution, "CANCELLED", "Cancelled", "by an operator")], outside.clock())
    _ring(outside, process)  # also after a repeated command, whose first one may have ended before its ring
    return "cancelled" if left else "not cancelled"


def set_limit(outside: Outside, process: str, limit: int) -> str:
    """An operator changes the limit."""
    outside.client("dynamodb").update_item(
        TableName=SLOTS,
        Key={"process_name": {"S": process}},
        UpdateExpression="SET slot_limit = :limit",
        ExpressionAttributeValues={":limit": number(limit)},
    )
    _ring(outside, process)
    return "set"


starter = Program("starter", receive)
dispatcher = Program("dispatcher", answer_bell)
workflow = Program("queue workflow", work)
canceller = Program("canceller", cancel)
limiter = Program("limiter", set_limit)
