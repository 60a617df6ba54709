"""Select dead-letter messages, and redrive them.

A message is sent again and then deleted. A command that dies in between loses nothing, and a second redrive of a
message has no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.next_step import next_step
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.bulk import NotRedrivable, check_process
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandRefused, NotFound
from slotkeeper_cli.requests import WITHOUT_CONTENT, message_of
from slotkeeper_cli.stack_connection import StackConnection

# The code of cancelled work. Redriven only by --id or --code, not by --all, since an operator decided against it.
CANCELLED = "Cancelled"

# The codes of work that would be refused again (docs/retries-reference.md).
_NOT_REDRIVABLE = {
    "RequestIdReused": WITHOUT_CONTENT["RequestIdReused"],
    "TooLarge": "it is too large for WorkQueue: store its payload in S3, and send the key",
}


def find_messages(reader: DeadLetterQueueReader, ids: Collection[str]) -> list[DeadLetterMessage]:
    """The messages with one of these ids: of the request, or of the message itself. Raises NotFound."""
    with closing(reader.sweep()) as lists:
        named = [message for messages in lists for message in messages if any(map(message.is_named, ids))]
    if missing := [one for one in dict.fromkeys(ids) if not any(message.is_named(one) for message in named)]:
        unread = f" It may be one that could not be read. {unread.text}." if (unread := reader.unread()) else ""
        raise NotFound(
            f"{reader.queue.full_name} has no message with id {', '.join(missing)}.{unread} List them with: "
            f"{next_step('dlq list', reader.queue)}. Nothing was changed."
        )
    return named


def refuse_if_ambiguous(messages: Iterable[DeadLetterMessage], ids: Collection[str]) -> None:
    """Refuse an id that requests of several processes have: they are different requests.

    Raises:
        CommandRefused: with the message id of each.
    """
    for one in dict.fromkeys(ids):
        named = [message for message in messages if message.is_named(one)]
        if len({message.process for message in named}) > 1:
            each = ", ".join(f"{message.message_id} ({message.process})" for message in named)
            raise CommandRefused(
                f"several processes have a request {one}: give the id of the message. The messages are: {each}. "
                "Nothing was changed."
            )


def plan(dead_letter: DeadLetterMessage, processes: Mapping[str, Process | MalformedProcess]) -> Request | Message:
    """What to send for a dead-letter message: a request to RequestQueue, or a message to WorkQueue.

    Args:
        processes: those that exist, by name.

    Raises:
        NotRedrivable: it would be refused again.
    """
    try:
        if not dead_letter.queue.has_requests:
            if dead_letter.code in _NOT_REDRIVABLE:
                raise NotRedrivable(_NOT_REDRIVABLE[dead_letter.code])
            return parse_message(dead_letter.body)
        delivery = Delivery(dead_letter.request_id, dead_letter.body, dead_letter.process, "0", dead_letter.sent_at)
        request = parse_request(delivery)
    except InvalidMessage as error:
        raise NotRedrivable(f"it is not a valid work message: {error}") from error
    except InvalidRequest as error:
        raise NotRedrivable(f"it is not a valid request: {error}") from error
    check_process(request.process, processes)
    return request


def send(stack: StackConnection, body: str, planned: Request | Message) -> None:
    """Send a message again. Errors of AWS pass through.

    Args:
        body: of the dead-letter message, which is that of a message to WorkQueue.
    """
    sqs = stack.client("sqs")
    if isinstance(planned, Request):
        sqs.send_message(QueueUrl=stack.outputs["RequestQueueUrl"], **message_of(planned))
        return
    attributes = {
        "idempotency_key": message_attributes.text(planned.request_id, 128),
        "retry_count": message_attributes.number(len(planned.retries)),
    }
    sqs.send_message(QueueUrl=stack.outputs["WorkQueueUrl"], MessageBody=body, MessageAttributes=attributes)
