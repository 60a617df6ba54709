"""From a message on RequestQueue to a request, or to a reason that its sender can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import fastjsonschema

from slotkeeper.schema import InvalidBody, compile_schema, decode, encode

SCHEMA_FILE = Path(__file__).with_name("request.schema.json")
# Bytes of a request as it is sent first. What is sent again has its id and attempt written out: for that RequestQueue
# takes `ADDED_BYTES` bytes more, and so every request can be given back, kept and redriven.
MAX_BODY_BYTES = 65_536
ADDED_BYTES = 1024


class InvalidRequest(ValueError):
    """A message that can never become a request; its text says what was wrong and what was expected."""


@dataclass(frozen=True)
class Delivery:
    """One receive of one message, as the event source mapping hands it over.

    Times are seconds since the epoch. `sequence` and `receives` order the deliveries of a group: a later message has
    a larger sequence number, a later receive of the same message a larger receive count.
    """

    message_id: str
    body: str
    group_id: str
    receipt_handle: str
    sequence: str
    receives: int
    sent_at: float

    @property
    def sortable_sequence(self) -> str:
        """The sequence number as text that sorts as the number does.

        Not as a number: it has up to 128 bits, 39 digits (SQS API Reference, SendMessage), and DynamoDB's hold 38.
        """
        return self.sequence.zfill(40)


def execution_name(process: str, request_id: str, attempt: int) -> str:
    """The execution name of a request's attempt: `<process>-<32 hex digits>`, at most 80 characters.

    It depends on the request alone, so a redelivered message can neither take a second slot nor start a second
    execution. The line feed keeps ("a1", 1) and ("a", 11) apart; the workflow's ReturnRequest state computes the same.

    Source of the 80: Step Functions API Reference, StartExecution, `name`.
    """
    digest = sha256(f"{request_id}\n{attempt}".encode()).hexdigest()
    return f"{process}-{digest[:32]}"


@dataclass(frozen=True)
class Request:
    """A valid request. `request_id` is the caller's own, or the id of the SQS message that brought it."""

    process: str
    arguments: Mapping[str, str]
    request_id: str
    attempt: int = 1

    @property
    def execution_name(self) -> str:
        return execution_name(self.process, self.request_id, self.attempt)

    def to_json(self) -> str:
        """The request as a message body and as execution input: the same text for the same request, always.

        Step Functions answers a repeated StartExecution of a running execution with that execution only if the input
        is the same (API Reference, StartExecution), so nothing of the delivery may get in here.
        """
        return encode(
            {
                "process": self.process,
                "arguments": dict(self.arguments),
                "request_id": self.request_id,
                "attempt": self.attempt,
            },
            sort_keys=True,
        )


def parse_request(delivery: Delivery) -> Request:
    """Reads a delivery's body.

    Raises:
        InvalidRequest: not JSON, not what request.schema.json says, too large, or in another process's message group.
    """
    fields = _decode(delivery.body)
    request = Request(
        process=fields["process"],
        arguments=fields["arguments"],
        request_id=fields.get("request_id", delivery.message_id),
        attempt=int(fields["attempt"]),
    )
    if request.attempt == 1 and (size := len(delivery.body.encode())) > MAX_BODY_BYTES:
        raise InvalidRequest(
            f"body has {size:,} bytes, and must not have more than {MAX_BODY_BYTES:,} when it is sent first"
        )
    if delivery.group_id != request.process:
        raise InvalidRequest(
            f"MessageGroupId is {delivery.group_id!r} but process is {request.process!r}: "
            "they must be the same, since order is kept per message group"
        )
    return request


def _decode(body: str) -> dict[str, Any]:
    try:
        return decode(body, _validator(), _explain)
    except InvalidBody as error:
        raise InvalidRequest(str(error)) from error


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    field = str(error.name).replace("data", "body", 1)
    if error.rule != "additionalProperties" or field != "body.arguments":
        return ""
    (allowed,) = error.definition["patternProperties"]
    refused = sorted(name for name in error.value if not re.search(allowed, name))
    return (
        f"{field} must not contain {', '.join(refused)[:500]}: a name is -- and then letters, digits, . _ or -, "
        "and Glue's own parameters and --slotkeeper-* are not for requests to set"
    )
