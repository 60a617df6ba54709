"""Submit requests: check them by the rules of the starter, send them to RequestQueue, and read their rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.intake import digest_of
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import (
    MAX_BODY_BYTES,
    Delivery,
    InvalidRequest,
    Request,
    check_numbers,
    parse_request,
)
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import GLUE_JOB, STATE_MACHINE, kind_of
from slotkeeper_cli.errors import CommandError
from slotkeeper_cli.formatting import one_line, start_time
from slotkeeper_cli.request_finder import failure_of
from slotkeeper_cli.requests import RequestState, hide_tokens, state_of
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.stack_connection import StackConnection, in_parallel
from slotkeeper_cli.target_checks import target_text

BATCH = 10  # SQS API Reference, SendMessageBatch
TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled at each try
# States after which the request that was sent is the next attempt.
_NEXT = ("RETURNED", "REDRIVEN")


class InvalidRequests(CommandError):
    """Requests that the starter would dead-letter, each with its line number. Nothing was sent."""

    exit_code = 2


@dataclass(frozen=True)
class NumberedRequest:
    """A request and its line number."""

    number: int
    request: Request


def read_lines(lines: Iterable[str]) -> list[NumberedRequest]:
    """The requests of a file with one JSON object per line. Empty lines are skipped.

    A request without an id receives one here, so that sending it again after a lost response repeats the same request.

    Raises:
        InvalidRequests: a request is invalid, or repeats the process and id of another, so that it would not run.
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
            errors.append(f"line {number}: repeats the process and request_id of line {first}")
        numbered.append(NumberedRequest(number, request))
    if errors:
        raise InvalidRequests("invalid requests; correct them and submit all again.", *errors, "Nothing was sent.")
    return numbered


def check(body: str) -> Request:
    """Parse a request, and give it an id if it has none. Raises InvalidRequest."""
    request = parse_request(Delivery(str(uuid4()), body, "", "0", 0.0))
    if request.deadline is not None and time.time() >= request.deadline:
        raise InvalidRequest(f"start_before {request.start_before} has passed, so it would be dead-lettered as TooLate")
    if request.task_token:
        raise InvalidRequest("it has a task_token, which only the task that waits for the answer can send: remove it")
    size = len(request.to_json().encode())
    if size > MAX_BODY_BYTES:
        raise InvalidRequest(f"it has {size:,} bytes; the maximum is {MAX_BODY_BYTES:,}")
    return request


def deadline_of(text: str) -> str:
    """The `start_before` that an option states.

    Raises:
        typer.BadParameter: it is no time, has no zone, or has passed.
    """
    start_before = start_time(text, time.time())
    try:
        check(json.dumps({"process": "p", "start_before": start_before}))
    except InvalidRequest as error:
        raise typer.BadParameter(f"--start-before takes HH:MM, or a date and a time with its zone: {error}") from error
    return start_before


@dataclass(frozen=True)
class SendResult:
    """A request with its message id, or with the reason why it was not sent."""

    request: Request
    message_id: str = ""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        return fields_of(self.request) | ({"error": self.error} if self.error else {"message_id": self.message_id})


def fields_of(request: Request) -> dict[str, Any]:
    """The names, priority and weight of a request as JSON shows them."""
    return {
        "request_id": request.request_id,
        "process": request.process,
        "execution": request.execution_name,
        "priority": request.priority,
        "weight": request.weight,
        **({"when_busy": request.when_busy} if request.when_busy != "wait" else {}),
        **({"start_before": request.start_before} if request.start_before else {}),
    }


def send_all(
    stack: StackConnection, requests: Sequence[Request], note: Callable[[str], None]
) -> Iterator[list[SendResult]]:
    """Send requests in order, in batches of ten.

    Requests that SQS refuses are sent again, and are then behind the accepted ones of their group. Their deduplication
    id stays, so a request that SQS accepted although it reported a failure is not queued twice.

    Args:
        note: receives a text for each batch that is sent again.
    """
    for start in range(0, len(requests), BATCH):
        yield _send_batch(stack, requests[start : start + BATCH], note)


def _send_batch(stack: StackConnection, requests: Sequence[Request], note: Callable[[str], None]) -> list[SendResult]:
    sqs, url = stack.client("sqs"), stack.outputs["RequestQueueUrl"]
    outcomes: dict[int, SendResult] = {}
    messages = [message_of(request) for request in requests]
    left = list(range(len(requests)))
    for attempt in range(TRIES):
        if attempt:
            error = next(outcomes[number].error for number in left)
            note(f"SQS refused {len(left)} of {len(requests)} requests ({error}): trying again.")
            time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
        entries = [{"Id": str(number), **messages[number]} for number in left]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        for taken in answer.get("Successful", []):
            number = int(taken["Id"])
            outcomes[number] = SendResult(requests[number], message_id=taken["MessageId"])
        refused = answer.get("Failed", [])
        for one in refused:
            number = int(one["Id"])
            outcomes[number] = SendResult(requests[number], error=f"{one['Code']}: {one.get('Message', '')}")
        # A second try does not help if the fault is the sender's.
        left = [int(one["Id"]) for one in refused if not one["SenderFault"]]
        if not left:
            break
    return [outcomes[number] for number in sorted(outcomes)]


def message_of(request: Request) -> dict[str, str]:
    """The fields of one sending of a request to RequestQueue. In one message group, a file's requests keep their order.

    The deduplication id is new for each sending, and a try that repeats it has the same fields. With the execution's
    name, SQS would accept a request that is sent again within five minutes, and drop it (SQS Developer Guide, "Amazon
    SQS FIFO queue key terms"). The starter recognizes a request that was sent before.
    """
    return {
        "MessageBody": request.to_json(),
        "MessageGroupId": request.process,
        "MessageDeduplicationId": str(uuid4()),
    }


def read_input(text: str) -> dict[str, Any]:
    """The input that an option contains: JSON, or @ and the name of a file with JSON.

    Raises:
        typer.BadParameter: it is not a JSON object, the file cannot be read, or the workflow would change a number.
    """
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        value = json.loads(text)
        check_numbers(text)
    except InvalidRequest as error:
        raise typer.BadParameter(f"--input: {error}. Nothing was sent.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f'--input cannot be read: {error}. Expected is a JSON object, such as \'{{"day": "2026-11-21"}}\', or '
            "@FILE. Nothing was sent."
        ) from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"--input must be a JSON object, got {one_line(text)}. Nothing was sent.")
    return value


def refuse_wrong_kind(known: Mapping[str, Process], requests: Sequence[Request]) -> None:
    """Refuse arguments for a state machine, an input for a Glue job, and any request for a process without a target.

    Args:
        known: the processes that exist, by name.

    Raises:
        InvalidRequests: the text names each of these requests.
    """
    errors = []
    for one in requests:
        target = known[one.process].target if one.process in known else ""
        if target == NO_TARGET:
            errors.append(f"{one.request_id}: process {one.process} is for leases only, it runs no requests")
        elif kind_of(target) is STATE_MACHINE and one.arguments:
            errors.append(f"{one.request_id}: {target_text(target)} takes an input (--input), not arguments")
        elif target and kind_of(target) is GLUE_JOB and one.input is not None:
            errors.append(f"{one.request_id}: {target_text(target)} takes arguments (--arg), not an input")
    if errors:
        text = "requests do not fit the target of their process."
        raise InvalidRequests(text, *errors, "Nothing was sent.")


@dataclass(frozen=True)
class Followed:
    """A request and the row of its last attempt; None if it has none yet.

    Attributes:
        request: its attempt is that of the row, or the one that is expected.
        message_id: of the message that has brought it; empty if it was not sent.
    """

    request: Request
    row: RequestRow | None = None
    message_id: str = ""

    @property
    def state(self) -> str:
        """The state of the row; without one `not accepted`."""
        return state_of(self.row.state) if self.row else "not accepted"

    @property
    def is_other(self) -> bool:
        """Whether another request has used the id, so that this one does not run."""
        if self.row is None:
            return False
        is_of_message = bool(self.message_id) and self.row.message_id == self.message_id
        return self.row.code == "RequestIdReused" or (not is_of_message and self.row.digest != digest_of(self.request))

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended, with or without success, or does not run."""
        return self.is_other or (self.row is not None and self.row.state not in ("QUEUED", "STARTED", *_NEXT))

    @property
    def has_failed(self) -> bool:
        """Whether the request has ended without success. A skipped one has not failed."""
        return self.has_ended and (self.is_other or self.state not in (RequestState.SUCCEEDED, RequestState.SKIPPED))

    @property
    def reason(self) -> str:
        """Why it failed or ended without a start; "" if neither."""
        return hide_tokens(failure_of(self.row)) if self.row else ""

    def as_dict(self) -> dict[str, Any]:
        """The outcome as JSON shows it."""
        code, cause = (self.row.code, hide_tokens(self.row.cause)) if self.row else ("", "")
        return {"state": self.state, "code": code or None, "reason": self.reason or None, "cause": cause or None}


def read_runs(rows: RowSearch, runs: Sequence[Followed]) -> list[Followed]:
    """Read the rows of requests, of the last attempt of each."""
    return in_parallel(lambda run: _last_attempt(rows, run), runs)


def _last_attempt(rows: RowSearch, run: Followed) -> Followed:
    """The run with the row of its last attempt.

    An attempt that ended without a start is the last one only if this message has brought it: a message of the same id
    becomes the next one (intake.py).
    """
    request = run.request
    while True:
        row = rows.row(request.process, request.execution_name)
        is_of_message = row is not None and bool(run.message_id) and row.message_id == run.message_id
        if row is None or not (row.state in _NEXT or (row.state in ENDED_WITHOUT_START and not is_of_message)):
            return replace(run, request=request, row=row)
        request = replace(request, attempt=request.attempt + 1)
