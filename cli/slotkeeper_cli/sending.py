"""Requests as somebody writes them down, checked as the starter will check them, and put on RequestQueue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from slotkeeper.slots.request import LARGEST, Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.errors import CommandError
from slotkeeper_cli.stack import Stack

BATCH = 10  # SQS API Reference, SendMessageBatch
TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled at each try


class Unusable(CommandError):
    """Requests that the starter would dead-letter: each is named with its line. Nothing was sent."""

    exit_code = 2


@dataclass(frozen=True)
class Line:
    """A request with the number of its line."""

    number: int
    request: Request


def read_lines(lines: Iterable[str]) -> list[Line]:
    """The requests of a file, one JSON object a line; empty lines are passed over.

    A request without an id is given one: its name is then known before it is sent, and if the answer is lost, it is the
    same request that is sent once more.

    Raises:
        Unusable: one is not valid, or has the same process and id as another, of which SQS would drop it.
    """
    found: list[Line] = []
    faults: list[str] = []
    numbers: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            request = check(text)
        except InvalidRequest as error:
            faults.append(f"line {number}: {error}")
            continue
        first = numbers.setdefault(request.execution_name, number)
        if first != number:
            faults.append(f"line {number}: has the process and request_id of line {first}")
        found.append(Line(number, request))
    if faults:
        raise Unusable("\n".join(["nothing was sent:", *faults]))
    return found


def check(body: str) -> Request:
    """One request, with an id. Raises InvalidRequest."""
    delivery = Delivery(str(uuid4()), body, _process_of(body), "", "0", 1, 0.0)
    request = parse_request(delivery)
    size = len(request.to_json().encode())
    if size > LARGEST:
        raise InvalidRequest(f"it has {size:,} bytes, and must not have more than {LARGEST:,}")
    return request


def _process_of(body: str) -> str:
    """What it says its process is, valid or not: the group that it would be sent in."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(fields.get("process", "")) if isinstance(fields, dict) else ""


@dataclass(frozen=True)
class Sent:
    """A request that SQS has taken, or why it has not."""

    request: Request
    message_id: str = ""
    error: str = ""

    def told(self) -> dict[str, Any]:
        """As JSON shows it."""
        told: dict[str, Any] = {
            "request_id": self.request.request_id,
            "process": self.request.process,
            "execution": self.request.execution_name,
        }
        return told | ({"error": self.error} if self.error else {"message_id": self.message_id})


def send_all(
    stack: Stack, requests: Sequence[Request], note: Callable[[str], None] = lambda _: None
) -> Iterator[list[Sent]]:
    """Puts them on the queue, ten at a time and in their order.

    What SQS does not take of a batch is sent again: it then stands behind those of its process that were taken. Its
    deduplication id is its execution's name, so what was taken after all is not there twice.

    Args:
        note: told of what is sent again.
    """
    for start in range(0, len(requests), BATCH):
        yield _send_batch(stack, requests[start : start + BATCH], note)


def _send_batch(stack: Stack, requests: Sequence[Request], note: Callable[[str], None]) -> list[Sent]:
    sqs, url = stack.client("sqs"), stack.outputs["RequestQueueUrl"]
    outcomes: dict[int, Sent] = {}
    left = dict(enumerate(requests))
    for attempt in range(TRIES):
        if attempt:
            note(f"SQS has not taken {len(left)} of {len(requests)}: {next(iter(outcomes.values())).error}; once more.")
            time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
        answer = sqs.send_message_batch(QueueUrl=url, Entries=[_entry(number, one) for number, one in left.items()])
        for taken in answer.get("Successful", []):
            number = int(taken["Id"])
            outcomes[number] = Sent(requests[number], message_id=taken["MessageId"])
        refused = answer.get("Failed", [])
        for one in refused:
            number = int(one["Id"])
            outcomes[number] = Sent(requests[number], error=f"{one['Code']}: {one.get('Message', '')}")
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
