"""Select dead-letter messages, and redrive them; redrive the rows of requests.

A request that has failed is queued again by one transaction: its row ends, and that of the next attempt is added. Then
its message is deleted. Work, and a message that the starter has never accepted, is sent again and then deleted. A
command that dies in between loses nothing, and what it redrives a second time has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.next_step import next_step
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, execution_name, parse_request
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.returns import NotRequeued
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandRefused, NotFound
from slotkeeper_cli.formatting import count, iso
from slotkeeper_cli.requests import FIELD, WITHOUT_CONTENT, state_of
from slotkeeper_cli.slot_control import SlotControl, add_command, no_process
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.submission import message_of

# The code of cancelled work. Redriven only by --id or --code, not by --all, since an operator decided against it.
CANCELLED = "Cancelled"
_MAX_NAMED = 10

# Returns None for a message that is not selected, otherwise why it is skipped, or "".
Selection = Callable[[DeadLetterMessage], str | None]
MAX_ATTEMPTS = 1_000_000  # request.schema.json
# The codes of work that would be refused again (docs/retries-reference.md).
_NOT_REDRIVABLE = {
    "RequestIdReused": WITHOUT_CONTENT["RequestIdReused"],
    "TooLarge": "it is too large for WorkQueue: store its payload in S3, and send the key",
}
REDRIVABLE = ("FAILED", *ENDED_WITHOUT_START)


def find_messages(reader: DeadLetterQueueReader, ids: Collection[str]) -> list[DeadLetterMessage]:
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
    """Selects all messages, and skips cancelled work."""
    if message.code == CANCELLED:
        return f"it was cancelled: to run it all the same, select it with --id or --code {CANCELLED}"
    return ""


def _has(reader: DeadLetterQueueReader, labels: list[str]) -> str:
    """What a queue has, and what could not be read."""
    texts = []
    if labels:
        some = ", ".join(dict.fromkeys(labels[:_MAX_NAMED]))
        more = f" and {count(len(labels) - _MAX_NAMED, 'other')}" if len(labels) > _MAX_NAMED else ""
        texts.append(f"It has: {some}{more}. List them with: {next_step('dlq list', reader.queue)}.")
    if unread := reader.unread():
        texts.append(f"It may be one that could not be read. {unread.text}.")
    return " ".join(texts or ["The queue is empty."]) + " Nothing was changed."


class NotRedrivable(ValueError):
    """The message would be refused again; the text states why."""


@dataclass(frozen=True)
class Redrive:
    """What to do for a dead-letter message.

    Attributes:
        attempt: the number of the attempt that is queued or sent.
        request: to send to RequestQueue.
        message: to send to WorkQueue.
        row: to queue again; None also if that was done before, so that only the message is left.
        deadline: of the row's next attempt, as `check_row` returns it.
    """

    dlq_message: DeadLetterMessage
    attempt: int
    request: Request | None = None
    message: Message | None = None
    row: RequestRow | None = None
    deadline: Deadline = None

    @property
    def execution(self) -> str:
        """The name of the execution that the request will have; empty for work."""
        of = self.dlq_message
        return execution_name(of.process, of.request_id, self.attempt, of.caller) if of.queue.has_requests else ""

    def summary(self) -> dict[str, Any]:
        """The redrive as JSON shows it."""
        data = {**self.dlq_message.summary(), "attempt": self.attempt}
        if not self.dlq_message.queue.has_requests:
            return data
        removed = self.dlq_message.had_token and self.request is not None
        return data | {"execution": self.execution} | ({FIELD: "removed"} if removed else {})


def plan(
    dead_letter: DeadLetterMessage,
    processes: Collection[str],
    malformed: Collection[str] = (),
    start_before: str = "",
    row: RequestRow | None = None,
) -> Redrive:
    """Decide what to do for a dead-letter message.

    Args:
        start_before: replaces that of a request which states one.
        processes: names of the processes that exist and can be read.
        malformed: names of the others.
        row: of the failed request.

    Raises:
        NotRedrivable: it would be refused again.
    """
    if not dead_letter.queue.has_requests:
        return _plan_work(dead_letter)
    if dead_letter.queue is DeadLetterQueueName.FAILED:
        if row is not None and row.state == "REDRIVEN":
            return Redrive(dead_letter, dead_letter.attempt + 1)
        check_process(dead_letter.process, processes, malformed)
        deadline = check_row(row, start_before, time.time())
        return Redrive(dead_letter, dead_letter.attempt + 1, row=row, deadline=deadline)
    request = read_request(dead_letter)
    check_process(request.process, processes, malformed)
    return Redrive(dead_letter, request.attempt, request=request)


# A `start_before` as in a request, and in seconds since the epoch; None: the request states none.
Deadline = tuple[str, float] | None


def check_process(process: str, processes: Collection[str], malformed: Collection[str]) -> None:
    """Raise NotRedrivable if a process runs no request that is redriven."""
    if process in malformed:
        raise NotRedrivable(
            f"the item of process {process!r} is malformed, so it would wait. Repair it first: "
            f"{next_step('process repair', process)}"
        )
    if process not in processes:
        raise NotRedrivable(f"{no_process(process, processes)} Add it with: {add_command(process)}")


def check_row(row: RequestRow | None, start_before: str, now: float) -> Deadline:
    """The deadline of the next attempt of a request.

    Args:
        start_before: replaces that of a request which states one; empty: it stays, if it has not passed.
        now: seconds since the epoch.

    Raises:
        NotRedrivable: the request cannot be queued again.
    """
    if row is None:
        raise NotRedrivable("it has no row in RequestTable: submit its body as a new request")
    if row.state not in REDRIVABLE:
        raise NotRedrivable(f"it is {state_of(row.state)}")
    if why := WITHOUT_CONTENT.get(row.code):
        raise NotRedrivable(why)
    if row.attempt >= MAX_ATTEMPTS:
        raise NotRedrivable(f"it was attempt {row.attempt}, which is the maximum: submit it with a different id")
    if row.start_before is None:
        return None
    if start_before:
        return start_before, datetime.fromisoformat(start_before).timestamp()
    if row.state == "TOO_LATE" or now >= row.start_before:
        raise NotRedrivable(
            f"its start_before, {iso(row.start_before)}, has passed: give a later one with --start-before"
        )
    return iso(row.start_before), row.start_before


def redrive_row(control: SlotControl, row: RequestRow, deadline: Deadline, now: float) -> str:
    """Queue a request again; return the execution of its next attempt. Its process must be rung for afterwards.

    Raises:
        NotRedrivable: it has changed meanwhile.
    """
    outcome = control.requeues.redrive(row.process, row.execution, now, deadline)
    if isinstance(outcome, NotRequeued):
        raise NotRedrivable(outcome.reason)
    return outcome.execution


def read_request(dead_letter: DeadLetterMessage) -> Request:
    """The request of a dead-letter message, with its id. Raises NotRedrivable."""
    delivery = Delivery(dead_letter.request_id, dead_letter.body, dead_letter.process, "0", dead_letter.sent_at)
    try:
        return parse_request(delivery)
    except InvalidRequest as error:
        raise NotRedrivable(f"it is not a valid request: {error}") from error


def _plan_work(dead_letter: DeadLetterMessage) -> Redrive:
    if dead_letter.code in _NOT_REDRIVABLE:
        raise NotRedrivable(_NOT_REDRIVABLE[dead_letter.code])
    try:
        message = parse_message(dead_letter.body)
    except InvalidMessage as error:
        raise NotRedrivable(f"it is not a valid work message: {error}") from error
    return Redrive(dead_letter, message.attempt, message=message)


def send(stack: StackConnection, control: SlotControl, redrive: Redrive) -> None:
    """Queue a request again, or send a message again. Errors of AWS pass through.

    Raises:
        NotRedrivable: the request has changed meanwhile.
    """
    sqs = stack.client("sqs")
    if redrive.row is not None:
        redrive_row(control, redrive.row, redrive.deadline, time.time())
    elif redrive.request is not None:
        sqs.send_message(QueueUrl=stack.outputs["RequestQueueUrl"], **message_of(redrive.request))
    elif redrive.message is not None:
        sqs.send_message(
            QueueUrl=stack.outputs["WorkQueueUrl"],
            MessageBody=redrive.dlq_message.body,
            MessageAttributes={
                "idempotency_key": message_attributes.text(redrive.message.request_id, 128),
                "retry_count": message_attributes.number(len(redrive.message.retries)),
            },
        )
