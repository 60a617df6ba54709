"""SQS as a pure function: queues, a request and the time give queues and an answer.

A FIFO queue delivers no message of a group while an earlier one of the group is in flight. A standard queue delivers
any visible message. Sources: SQS Developer Guide, "FIFO queue delivery logic" and "Exactly-once processing in Amazon
SQS"; API Reference; the recordings in tests/facts/sqs_facts.py.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.frozen import Record, freeze, record
from tests.simulation.transcript import Answer

DEDUPLICATION = 300  # seconds (SQS API Reference, SendMessage, MessageDeduplicationId)
LONGEST_DELAY = 900  # seconds (SQS API Reference, SendMessage, DelaySeconds)
_NOTHING = record({})


def queue(visibility: int = 30, fifo: bool = False, lax: bool = True) -> Record:
    """One empty queue. No message of a FIFO queue is hidden by itself.

    Args:
        visibility: the default visibility timeout in seconds.
        lax: a handle hides its message although the message is visible again, and also after a later receive, as
            recorded. The product must not rely on it, since the API Reference documents MessageNotInflight.
    """
    fields = {"visibility": visibility, "fifo": fifo, "lax": lax, "messages": (), "sent": 0, "ids": _NOTHING}
    return record(fields)


def perform(queues: Record, operation: str, parameters: Record, now: float) -> tuple[Record, Answer]:
    """One operation on `queues`, URL -> queue; `now` in seconds since the epoch."""
    url = parameters["QueueUrl"]
    changed, answer = _OPERATIONS[operation](queues[url], parameters, now)
    return (queues if changed is queues[url] else queues.with_fields(**{url: changed})), answer


def is_in_flight(message: Record, now: float) -> bool:
    """Whether the message was received and is still hidden."""
    return bool(message["handle"]) and message["visible_at"] > now


def expire(queues: Record, url: str, message_id: str, now: float) -> Record:
    """The queues after this message's visibility timeout has ended."""
    changed = tuple(
        message.with_fields(visible_at=now) if message["id"] == message_id else message
        for message in queues[url]["messages"]
    )
    return queues.with_fields(**{url: queues[url].with_fields(messages=changed)})


def receivable(queue: Record, now: float, *, together: bool = False) -> list[Record]:
    """The messages that the next receive may return.

    Of a group of a FIFO queue it is the first message, unless that is hidden; with `together`, in a receive of several
    messages, all before the first hidden one.
    """
    if not queue["fifo"]:
        return [message for message in queue["messages"] if message["visible_at"] <= now]
    messages: list[Record] = []
    ended: set[str] = set()
    for message in queue["messages"]:
        if message["group"] not in ended and message["visible_at"] <= now:
            messages.append(message)
            if together:
                continue
        ended.add(message["group"])
    return messages


def _send(queue: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    if parameters.get("DelaySeconds", 0) > LONGEST_DELAY:
        return queue, Answer(error="InvalidParameterValue")
    group, given = parameters.get("MessageGroupId"), parameters.get("MessageDeduplicationId")
    number = queue["sent"] + 1
    if given is not None:  # per group: DeduplicationScope messageGroup in template.yaml
        key = f"{group}/{given}"
        before = queue["ids"].get(key)
        if before is not None and now - before[0] < DEDUPLICATION:
            return queue, _sent(before[1], before[2], group)
        queue = queue.with_fields(ids=queue["ids"].with_fields(**{key: (now, f"m{number}", number)}))
    message = record(
        {
            "id": f"m{number}",
            "body": parameters["MessageBody"],
            "attributes": parameters.get("MessageAttributes", _NOTHING),
            "group": group,
            "sequence": number,
            "sent_at": now,
            "receives": 0,
            "first_received": 0.0,
            "visible_at": now + parameters.get("DelaySeconds", 0),
            "handle": "",
        }
    )
    return queue.with_fields(sent=number, messages=(*queue["messages"], message)), _sent(f"m{number}", number, group)


def _sent(message_id: str, number: int, group: str | None) -> Answer:
    return Answer(freeze({"MessageId": message_id} | ({"SequenceNumber": str(number)} if group is not None else {})))


def receive(queue: Record, message: Record, now: float) -> tuple[Record, Answer]:
    """The queue after this message was received."""
    receives = message["receives"] + 1
    taken = message.with_fields(
        receives=receives,
        first_received=message["first_received"] or now,
        handle=f"{message['id']}#{receives}",
        visible_at=now + queue["visibility"],
    )
    return _replace(queue, message, taken), Answer(freeze({"Messages": [taken]}))


def _change_visibility(queue: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    message = _to_hide(queue, parameters["ReceiptHandle"])
    if message is None:
        return queue, Answer(error="InvalidParameterValue")
    if not is_in_flight(message, now) and not queue["lax"]:
        return queue, Answer(error="MessageNotInflight")
    return _replace(queue, message, message.with_fields(visible_at=now + parameters["VisibilityTimeout"])), _DONE


def _attributes(queue: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    messages = queue["messages"]
    counts = {
        "ApproximateNumberOfMessages": sum(message["visible_at"] <= now for message in messages),
        "ApproximateNumberOfMessagesNotVisible": sum(is_in_flight(message, now) for message in messages),
    }
    return queue, Answer(freeze({"Attributes": {name: str(counts[name]) for name in parameters["AttributeNames"]}}))


def _delete(queue: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    handle = parameters["ReceiptHandle"]
    message = _by_handle(queue, handle)
    if message is None:
        # An old handle deletes nothing. A FIFO queue returns an error, a standard one does not (SQS API Reference).
        spent = queue["fifo"] and not _was_deleted(queue, handle)
        return queue, Answer(error="InvalidParameterValue") if spent else _DONE
    # On a FIFO queue an expired handle deletes nothing (SQS API Reference, DeleteMessage); on a standard one it does.
    if message["group"] is not None and not is_in_flight(message, now):
        return queue, Answer(error="InvalidParameterValue")
    return queue.with_fields(messages=tuple(m for m in queue["messages"] if m is not message)), _DONE


def _to_hide(queue: Record, handle: str) -> Record | None:
    if not queue["lax"]:
        return _by_handle(queue, handle)
    message_id = handle.partition("#")[0]
    return next((message for message in queue["messages"] if message["id"] == message_id), None)


def _was_deleted(queue: Record, handle: str) -> bool:
    return all(message["id"] != handle.partition("#")[0] for message in queue["messages"])


def _by_handle(queue: Record, handle: str) -> Record | None:
    """The message with this handle, if the handle is its newest."""
    return next((message for message in queue["messages"] if message["handle"] == handle), None)


def _replace(queue: Record, old: Record, new: Record) -> Record:
    return queue.with_fields(messages=tuple(new if message is old else message for message in queue["messages"]))


_DONE = Answer(freeze({}))
_OPERATIONS: dict[str, Any] = {
    "send_message": _send,
    "change_message_visibility": _change_visibility,
    "delete_message": _delete,
    "get_queue_attributes": _attributes,
}
