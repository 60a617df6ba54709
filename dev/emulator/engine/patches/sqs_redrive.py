"""Dead letters can be redriven: StartMessageMoveTask, ListMessageMoveTasks.

AWS: "Amazon SQS API Reference: StartMessageMoveTask": the source is a dead-letter queue of another queue; without a
destination each message returns to its source queue. "Amazon SQS Developer Guide: Learn how to configure a dead-letter
queue redrive": redriven messages are new ones, with a new id and time. A message that was sent directly to the
dead-letter queue has no source queue, and stays ("DLQ and DLQ redrive issues": CouldNotDetermineMessageSource).
MiniStack has neither action. Here the task has ended when StartMessageMoveTask answers.
"""

import json
import time
import uuid
from typing import Any

from dev.emulator.engine.emulator import PatchError, sqs
from dev.emulator.engine.patches.sqs_locks import locked

NO_SOURCE = "CouldNotDetermineMessageSource"

_tasks: dict[str, list[dict[str, Any]]] = {}


def apply() -> None:
    """Add the actions."""
    if {"StartMessageMoveTask", "ListMessageMoveTasks"} & set(sqs._HANDLERS):
        raise PatchError("MiniStack has message move tasks now")
    sqs._HANDLERS["StartMessageMoveTask"] = locked(_start)
    sqs._HANDLERS["ListMessageMoveTasks"] = _list


def _start(data: dict[str, Any], _url: str) -> dict[str, str]:
    source = _queue(data["SourceArn"])
    if not any(_dead_letter_queue(queue) == data["SourceArn"] for queue in sqs._queues.values()):
        raise sqs._Err("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
    if "DestinationArn" in data:
        _queue(data["DestinationArn"])
    task = {
        "SourceArn": data["SourceArn"],
        "StartedTimestamp": int(time.time() * 1000),
        "ApproximateNumberOfMessagesToMove": len(source["messages"]),
        **({"DestinationArn": data["DestinationArn"]} if "DestinationArn" in data else {}),
        **_move(source, data.get("DestinationArn")),
    }
    _tasks.setdefault(data["SourceArn"], []).insert(0, task)
    return {"TaskHandle": str(uuid.uuid4())}  # AWS lists it while the task runs


def _move(source: dict[str, Any], destination: str | None) -> dict[str, Any]:
    moved = []
    outcome: dict[str, Any] = {"Status": "COMPLETED"}
    for message in [each for each in source["messages"] if each["visible_at"] <= time.time()]:
        target = destination or message["sys"].get("DeadLetterQueueSourceArn")
        if target is None:
            outcome = {"Status": "FAILED", "FailureReason": NO_SOURCE}
            continue
        try:
            sqs._act_send_message(_sent_again(message), _queue(target)["url"])
        except sqs._Err as error:
            outcome = {"Status": "FAILED", "FailureReason": error.code}
            continue
        moved.append(message["id"])
    source["messages"] = [message for message in source["messages"] if message["id"] not in moved]
    return {**outcome, "ApproximateNumberOfMessagesMoved": len(moved)}


def _sent_again(message: dict[str, Any]) -> dict[str, Any]:
    again = {"MessageBody": message["body"], "MessageAttributes": message["message_attributes"]}
    if message["group_id"]:
        again |= {"MessageGroupId": message["group_id"], "MessageDeduplicationId": message["id"]}
    return again


def _list(data: dict[str, Any], _url: str) -> dict[str, Any]:
    tasks = _tasks.get(data["SourceArn"], [])
    return {"Results": tasks[: int(data.get("MaxResults", 1))]}


def _queue(arn: str) -> dict[str, Any]:
    queue: dict[str, Any] | None = sqs._queue_by_arn(arn)
    if queue is None:
        raise sqs._Err("ResourceNotFoundException", "The resource that you specified for the SourceArn doesn't exist.")
    return queue


def _dead_letter_queue(queue: dict[str, Any]) -> Any:
    return json.loads(queue["attributes"].get("RedrivePolicy") or "{}").get("deadLetterTargetArn")
