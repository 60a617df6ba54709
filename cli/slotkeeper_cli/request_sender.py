"""Check requests as the starter does, and send them to RequestQueue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from slotkeeper.slots.request import MAX_BODY_BYTES, Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.errors import CommandError
from slotkeeper_cli.stack_connection import StackConnection

BATCH = 10  # SQS API Reference, SendMessageBatch
TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled at each try


class InvalidRequests(CommandError):
    """Requests that the starter would dead-letter: each is named with its line. Nothing was sent."""

    exit_code = 2


@dataclass(frozen=True)
class NumberedRequest:
    """A request with the number of its line."""

    number: int
    request: Request


def read_lines(lines: Iterable[str]) -> list[NumberedRequest]:
    """The requests of a file, one JSON object a line; empty lines are passed over.

    A request without an id is given one: its name is then known before it is sent, and if the answer is lost, it is the
    same request that is sent once more.

    Raises:
        InvalidRequests: one is not valid, or has the same process and id as another, of which SQS would drop it.
    """
    numbered: list[NumberedRequest] = []
    errors: list[str] = []
    numbers: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            request = check(text)
        except InvalidRequest as error:
            errors.append(f"line {number}: {error}")
            continue
        first = numbers.setdefault(request.execution_name, number)
        if first != number:
            errors.append(f"line {number}: has the process and request_id of line {first}")
        numbered.append(NumberedRequest(number, request))
    if errors:
        raise InvalidRequests("\n".join(["nothing was sent:", *errors]))
    return numbered


def check(body: str) -> Request:
    """One request, with an id. Raises InvalidRequest."""
    delivery = Delivery(str(uuid4()), body, _process_of(body), "", "0", 1, 0.0)
    request = parse_request(delivery)
    size = len(request.to_json().encode())
    if size > MAX_BODY_BYTES:
        raise InvalidRequest(f"it has {size:,} bytes, and must not have more than {MAX_BODY_BYTES:,}")
    return request


def _process_of(body: str) -> str:
    """The process that a body names, valid or not: its message group."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(fields.get("process", "")) if isinstance(fields, dict) else ""


@dataclass(frozen=True)
class SendResult:
    """A request that SQS has taken, or why it has not."""

    request: Request
    message_id: str = ""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        data: dict[str, Any] = {
            "request_id": self.request.request_id,
            "process": self.request.process,
            "execution": self.request.execution_name,
        }
        return data | ({"error": self.error} if self.error else {"message_id": self.message_id})


def send_all(
    stack: StackConnection, requests: Sequence[Request], note: Callable[[str], None] = lambda _: None
) -> Iterator[list[SendResult]]:
    """Puts them on the queue, ten at a time and in their order.

    What SQS does not take of a batch is sent again, and is then behind those of its process that were accepted. Its
    deduplication id is its execution's name, so what was taken after all is not there twice.

    Args:
        note: called with a text for each batch that is sent again.
    """
    for start in range(0, len(requests), BATCH):
        yield _send_batch(stack, requests[start : start + BATCH], note)


def _send_batch(stack: StackConnection, requests: Sequence[Request], note: Callable[[str], None]) -> list[SendResult]:
    sqs, url = stack.client("sqs"), stack.outputs["RequestQueueUrl"]
    outcomes: dict[int, SendResult] = {}
    left = dict(enumerate(requests))
    for attempt in range(TRIES):
        if attempt:
            note(f"SQS has not taken {len(left)} of {len(requests)}: {next(iter(outcomes.values())).error}; once more.")
            time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
        answer = sqs.send_message_batch(QueueUrl=url, Entries=[_entry(number, one) for number, one in left.items()])
        for taken in answer.get("Successful", []):
            number = int(taken["Id"])
            outcomes[number] = SendResult(requests[number], message_id=taken["MessageId"])
        refused = answer.get("Failed", [])
        for one in refused:
            number = int(one["Id"])
            outcomes[number] = SendResult(requests[number], error=f"{one['Code']}: {one.get('Message', '')}")
        # What is wrong with a request itself, does not get better.
        left = {int(one["Id"]): requests[int(one["Id"])] for one in refused if not one["SenderFault"]}
        if not left:
            break
    return [outcomes[number] for number in sorted(outcomes)]


def _entry(number: int, request: Request) -> dict[str, str]:
    return {
        "Id": str(number),
        "MessageBody": request.to_json(),
        "MessageGroupId": request.process,
        "MessageDeduplicationId": request.execution_name,
    }
