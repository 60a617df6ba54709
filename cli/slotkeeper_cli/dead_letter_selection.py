"""Select dead-letter messages by id or code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing

from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandRefused, NotFound
from slotkeeper_cli.formatting import count

# The code of a cancelled request. Redriven only by --id or --code, not by --all, since an operator decided against it.
CANCELLED = "Cancelled"
_MAX_NAMED = 10

# Returns None for a message that is not selected, otherwise why it is skipped, or "".
Selection = Callable[[DeadLetterMessage], str | None]


def find(reader: DeadLetterQueueReader, ids: Collection[str]) -> list[DeadLetterMessage]:
    """The messages with one of these ids: of the request, of its execution, or of the message itself.

    Raises:
        NotFound: no message has one of the ids. The text names messages that the queue has, and how many could not be
            read.
    """
    named: list[DeadLetterMessage] = []
    others: list[str] = []
    with closing(reader.sweep()) as lists:
        for message in (each for messages in lists for each in messages):
            if any(message.is_named(one) for one in ids):
                named.append(message)
            else:
                others.append(message.label)
    if missing := [one for one in dict.fromkeys(ids) if not any(message.is_named(one) for message in named)]:
        labels = [message.label for message in named] + others
        raise NotFound(f"{reader.queue.full_name} has no message with id {', '.join(missing)}. {_has(reader, labels)}")
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


def of_messages(messages: Iterable[DeadLetterMessage]) -> Selection:
    """Selects these messages."""
    ids = {message.message_id for message in messages}
    return lambda message: "" if message.message_id in ids else None


def of_codes(codes: Collection[str]) -> Selection:
    """Selects all messages of these codes."""
    return lambda message: "" if message.code in codes else None


def all_but_cancelled(message: DeadLetterMessage) -> str | None:
    """Selects all messages, and skips cancelled requests."""
    if message.code == CANCELLED:
        return f"it was cancelled: to run it all the same, select it with --id or --code {CANCELLED}"
    return ""


def _has(reader: DeadLetterQueueReader, labels: list[str]) -> str:
    """What a queue has, and what could not be read."""
    texts = []
    if labels:
        some = ", ".join(dict.fromkeys(labels[:_MAX_NAMED]))
        more = f" and {count(len(labels) - _MAX_NAMED, 'other')}" if len(labels) > _MAX_NAMED else ""
        texts.append(f"It has: {some}{more}. List them with: slotkeeper dlq list {reader.queue}.")
    if unread := reader.unread():
        texts.append(f"It may be one that could not be read. {unread.text}.")
    return " ".join(texts or ["The queue is empty."]) + " Nothing was changed."
