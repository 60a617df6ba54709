"""Parses messages of RequestQueue into requests, or into reasons that the sender can act on; masks task tokens."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import fastjsonschema

from slotkeeper.schema import InvalidBody, compile_schema, decode, encode

SCHEMA_FILE = Path(__file__).with_name("request.schema.json")
# Bytes of a request's body. Its row has at most 400 KB, and each of its writes is paid by the row's size.
MAX_BODY_BYTES = 65_536
# Bytes of `input`. The child's whole input, and its description, must stay far below 256 KiB, above which a task fails
# with States.DataLimitExceeded (Step Functions guide, "Service quotas", input or output size of a task).
MAX_INPUT_BYTES = 32_768
# Of a number in `input`, which the workflow passes to the child with JSONata. Numbers of JSONata 2.0.6, which Step
# Functions documents, are doubles, and its $string rounds them to 15 significant digits. Every number of 15 digits
# between these magnitudes survives both.
MAX_DIGITS = 15
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-300, 1e300

EXAMPLE_TIME = "2026-11-28T08:00:00+01:00"
# Bytes of a key in UTF-8. A holder and a place contain it, and each write is paid by the size of all holders.
MAX_KEY_BYTES = 64
MAX_TOKEN_CHARACTERS = 2048  # Step Functions API Reference, SendTaskSuccess

Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")  # in the order in which waiting requests get slots
DEFAULT_PRIORITY: Priority = "normal"
WhenBusy = Literal["wait", "skip"]


class InvalidRequest(ValueError):
    """A message that is not a valid request. The message states the fault and the expected form."""


class RequestTooLarge(InvalidRequest):
    """A valid request that is too large. `request`: without its arguments and input."""

    def __init__(self, message: str, request: Request) -> None:
        super().__init__(message)
        self.request = replace(request, arguments={}, input=None)


@dataclass(frozen=True)
class Delivery:
    """A message of RequestQueue, as the event source mapping delivers it.

    `sent_at`: seconds since the epoch. `sequence`: its sequence number, which grows within a message group.
    """

    message_id: str
    body: str = field(repr=False)  # it may contain a task token
    group_id: str
    sequence: str
    sent_at: float


def execution_name(process: str, request_id: str, attempt: int, caller: str = "") -> str:
    """The execution name of a request's attempt: `<process>-<32 hex digits>`, at most 80 characters.

    The name depends only on the request, so a redelivered message cannot take a second slot or start a second
    execution. The line feed separates ("a1", 1) from ("a", 11). A request with a task token is another one for each
    token (`caller_of`), because a caller's own Retry has a new token, and waits for its own answer.

    Source of the 80: Step Functions API Reference, StartExecution, `name`.
    """
    parts = (request_id, str(attempt), caller) if caller else (request_id, str(attempt))
    return f"{process}-{_digest(chr(10).join(parts))}"


def caller_of(task_token: str) -> str:
    """What identifies a caller in execution names and inputs, which must not contain its token; "" without a token."""
    return _digest(task_token) if task_token else ""


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def process_of_execution(name: str) -> str:
    """The process in an execution's name. A manually started execution may have any name."""
    return name.rpartition("-")[0]


@dataclass(frozen=True)
class Request:
    """A valid request. `request_id` is the caller's own, or the id of the SQS message that contained it.

    Attributes:
        arguments: of the Glue job run.
        weight: in the unit of the process's limit, 1 to MAX_WEIGHT. None: the process's default weight.
        input: of the state machine's execution. None: the request states none.
        task_token: of the Step Functions task that waits for the answer; "" if none waits.
        when_busy: whether it waits for a slot, or is skipped if it cannot start when it is received.
        start_before: the time from which it does not start any more, ISO 8601 with zone; "" if none is stated.
        key: whose turn it takes, and whose limit applies to it, such as a customer; "" for none.
    """

    process: str
    arguments: Mapping[str, str]
    request_id: str
    attempt: int = 1
    priority: Priority = DEFAULT_PRIORITY
    weight: int | None = None
    input: Mapping[str, Any] | None = None
    task_token: str = field(default="", repr=False)
    when_busy: WhenBusy = "wait"
    start_before: str = ""
    key: str = ""

    @property
    def caller(self) -> str:
        return caller_of(self.task_token)

    @property
    def deadline(self) -> float | None:
        """`start_before` in seconds since the epoch. Raises ValueError if it is no time, which a request never has."""
        return datetime.fromisoformat(self.start_before).timestamp() if self.start_before else None

    @property
    def execution_name(self) -> str:
        return execution_name(self.process, self.request_id, self.attempt, self.caller)

    def to_json(self) -> str:
        """Encode the request as message body and execution input. The same request always gives the same text.

        Step Functions answers a repeated StartExecution of a running execution with that execution only if the input
        is the same (API Reference, StartExecution). So the text contains nothing of the delivery. It contains no task
        token, because status events and notifications carry the input.
        """
        fields: dict[str, Any] = {
            "process": self.process,
            "arguments": dict(self.arguments),
            "request_id": self.request_id,
            "attempt": self.attempt,
        }
        if self.priority != DEFAULT_PRIORITY:
            fields["priority"] = self.priority
        if self.weight is not None:
            fields["weight"] = self.weight
        if self.input is not None:
            del fields["arguments"]
            fields["input"] = dict(self.input)
        if self.when_busy != "wait":
            fields["when_busy"] = self.when_busy
        if self.start_before:
            fields["start_before"] = self.start_before
        if self.key:
            fields["key"] = self.key
        if self.caller:
            fields["caller"] = self.caller
        return encode(fields, sort_keys=True)


def parse_request(delivery: Delivery) -> Request:
    """Parse a delivery's body.

    Raises:
        InvalidRequest: the body is not JSON, or does not match request.schema.json.
        RequestTooLarge: it matches, and is too large.
    """
    fields = _decode(delivery.body)
    request = Request(
        process=fields["process"],
        arguments=fields["arguments"],
        request_id=fields.get("request_id", delivery.message_id),
        attempt=int(fields["attempt"]),
        priority=fields["priority"],
        weight=int(fields["weight"]) if "weight" in fields else None,
        input=fields.get("input"),
        task_token=fields.get("task_token", ""),
        when_busy=fields["when_busy"],
        start_before=fields.get("start_before", ""),
        key=fields.get("key", ""),
    )
    if request.key and (fault := _fault_of_key(request.key)):
        raise InvalidRequest(fault)
    try:
        _ = request.deadline
    except ValueError as error:
        raise InvalidRequest(f"start_before is {request.start_before!r}, which is no time: {error}") from error
    if request.input is not None:
        _check_input(request)
        check_numbers(delivery.body, "input")
    if (size := len(delivery.body.encode())) > MAX_BODY_BYTES:
        raise RequestTooLarge(
            f"body has {size:,} bytes; it may have at most {MAX_BODY_BYTES:,}. "
            "Put large input into S3 and send its key",
            request,
        )
    return request


def check_key(key: str) -> None:
    """Check the key of a request.

    Raises:
        ValueError: it is empty, too long, or has a character that does not survive: half of a surrogate pair, which
            UTF-8 does not have, or a control character, which terminals obey.
    """
    if not key:
        raise ValueError(f"must have 1 to {MAX_KEY_BYTES} bytes; a request without a key has no field `key`")
    if refused := sorted({character for character in key if unicodedata.category(character) in ("Cc", "Cs")}):
        raise ValueError(f"must contain no control character and no half of a surrogate pair, got {refused!a}")
    if (size := len(key.encode())) > MAX_KEY_BYTES:
        raise ValueError(f"must have at most {MAX_KEY_BYTES} bytes in UTF-8, got {size:,} bytes")


def _fault_of_key(key: str) -> str:
    try:
        check_key(key)
    except ValueError as error:
        return f"body.key {error}"
    return ""


def _check_input(request: Request) -> None:
    if request.arguments:
        raise InvalidRequest("body has arguments and input; a Glue job takes arguments, a state machine takes input")
    if (size := len(encode(request.input).encode())) > MAX_INPUT_BYTES:
        raise RequestTooLarge(
            f"input has {size:,} bytes; it may have at most {MAX_INPUT_BYTES:,}. "
            "Put large input into S3 and send its key",
            request,
        )


class _Literal(str):
    """A number as its sender has written it."""

    __slots__ = ()


def check_numbers(text: str, field: str = "") -> None:
    """Check the numbers in JSON that becomes a request's `input`, or in one field of it.

    The text must be valid JSON: a parsed number no longer has the digits that it was written with.

    Raises:
        InvalidRequest: the workflow would change a number when it keeps or returns the request.
    """
    value = json.loads(text, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal)
    left = [("input", value[field] if field else value)]
    while left:
        path, value = left.pop()
        if isinstance(value, _Literal) and not _survives(value):
            raise InvalidRequest(
                f"{path[:200]} is {value[:50]}; a number may have at most {MAX_DIGITS} significant digits and a size "
                f"from {SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g}, because Step Functions changes others when it keeps "
                f'the request. Send it as text: "{value[:50]}"'
            )
        if isinstance(value, dict):
            left += [(f"{path}.{name}", part) for name, part in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{number}]", part) for number, part in enumerate(value)]


def _survives(literal: str) -> bool:
    digits = literal.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    return not digits or (len(digits) <= MAX_DIGITS and SMALLEST_NUMBER <= abs(float(literal)) <= LARGEST_NUMBER)


def _decode(body: str) -> dict[str, Any]:
    try:
        return decode(body, _validator(), _explain)
    except InvalidBody as error:
        raise InvalidRequest(masked(str(error))) from error


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    field = str(error.name).replace("data", "body", 1)
    if not isinstance(error.value, dict) and field == "body":  # without its value, which may contain a task token
        got = "a string; was it encoded twice?" if isinstance(error.value, str) else "another value"
        return f"body must be a JSON object, got {got}"
    if field == "body.task_token":  # without its value
        return f"{field} must be a string of 1 to {MAX_TOKEN_CHARACTERS:,} visible ASCII characters"
    if field == "body.key" and isinstance(error.value, str):
        return _fault_of_key(error.value)
    if field == "body.start_before":
        return f"{field} must be a time with its zone, such as {EXAMPLE_TIME}, got {str(error.value)[:100]!r}"
    if error.rule != "additionalProperties" or field != "body.arguments":
        return ""
    (allowed,) = error.definition["patternProperties"]
    refused = sorted(name for name in error.value if not re.search(allowed, name))
    return (
        f"{field} must not contain {', '.join(refused)[:500]}: a name is -- followed by A-Z a-z 0-9 . _ -, "
        "and requests cannot set Glue's own parameters or --slotkeeper-*"
    )


# Task tokens in message bodies. With a token anyone who may call Step Functions can answer the caller, so bodies that
# operators read contain none.
#
# A token in any text: cut, not JSON, or JSON in a JSON string, where each quote has the same number of backslashes. A
# quoted value ends at its quote with as many backslashes; a quote with more of them is a character of the value.
_TOKEN_TEXT = re.compile(
    r"""
    (task_token \\* ["']? \s* [:=] [\s\[{]* (?: (?P<escape> \\*) (?P<quote> ["']) )?)
    (?(quote)
        (?: [^\\"'] | (?! (?P=escape) (?P=quote)) \\+ . | (?! (?P=quote)) ["'] )+
      | [^\s"'\\,\[\]{}]+
    )
    """,
    re.DOTALL | re.VERBOSE,
)


def token_of(body: str) -> str:
    """The task token in a body that need not be a valid request; "" if it has none that Step Functions would take."""
    token = (_object(body) or {}).get("task_token")
    if not isinstance(token, str) or not token.isascii():
        return ""
    return token if 1 <= len(token) <= MAX_TOKEN_CHARACTERS else ""


def without_token(body: str) -> str:
    """The body without its task token, and without the digest of it; unchanged if it has neither.

    In a body that is not a JSON object, the token's text is removed.
    """
    fields = _object(body)
    if fields is None:
        return masked(body)
    if not fields.keys() & {"task_token", "caller"}:
        return body
    try:
        return encode({name: value for name, value in fields.items() if name not in ("task_token", "caller")})
    except RecursionError:
        return masked(body)


def masked(text: str, hidden: str = "...") -> str:
    """The text with each task token in it replaced by `hidden`, whether it is JSON, a part of it, or another text."""
    if "oken" not in text and "\\u" not in text:  # a quick test; a name may be escaped
        return text
    shown = text
    try:
        value = json.loads(text)
        if (without := hide_fields(value, ["task_token"], hidden)) != value:
            shown = json.dumps(without)
    except (ValueError, RecursionError):
        pass
    return _TOKEN_TEXT.sub(rf"\g<1>{hidden}", shown)


def hide_fields(value: Any, names: Collection[str], hidden: str) -> Any:
    """A JSON value with the fields of these names, at any depth, replaced by `hidden`."""
    if isinstance(value, dict):
        return {name: hidden if name in names else hide_fields(each, names, hidden) for name, each in value.items()}
    return [hide_fields(each, names, hidden) for each in value] if isinstance(value, list) else value


def _object(body: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
