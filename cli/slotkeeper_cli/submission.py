"""Submit requests: check them by the rules of the starter, send them to RequestQueue, and read their runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer

from slotkeeper.slots.executions import Execution, Workflow, failure_reason
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import (
    DEFAULT_PRIORITY,
    MAX_BODY_BYTES,
    Delivery,
    InvalidRequest,
    Request,
    check_numbers,
    message_group,
    parse_request,
)
from slotkeeper.slots.skipped_requests import SkippedRequests
from slotkeeper.slots.targets import GLUE_JOB, NO_TARGET, STATE_MACHINE, kind_of
from slotkeeper_cli.errors import CommandError
from slotkeeper_cli.formatting import one_line, start_time
from slotkeeper_cli.requests import RETURNED, fields_in
from slotkeeper_cli.stack_connection import StackConnection, in_parallel
from slotkeeper_cli.target_checks import target_text

BATCH = 10  # SQS API Reference, SendMessageBatch
TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled at each try
# After `start_before`: the starter's time-out, with which an earlier receive may start the request, and a clock's lead.
LATE_SECONDS = 60


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
    delivery = Delivery(str(uuid4()), body, group_of(body), "", "0", 1, 0.0)
    request = parse_request(delivery)
    if request.is_too_late(time.time()):
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


def group_of(body: str) -> str:
    """The message group in which a body is a valid request, if it is one."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    return message_group(str(fields.get("process", "")), str(fields.get("priority", DEFAULT_PRIORITY)))


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
    stack: StackConnection, requests: Sequence[Request], note: Callable[[str], None] = lambda _: None
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
    """The fields of one sending of a request to RequestQueue, in the message group of its process and priority.

    The deduplication id is new for each sending, and a try that repeats it has the same fields. With the execution's
    name, SQS would accept a request that is sent again within five minutes of its dead letter, and drop it (SQS
    Developer Guide, "Amazon SQS FIFO queue key terms"). The starter recognizes a request that has run.
    """
    return {
        "MessageBody": request.to_json(),
        "MessageGroupId": message_group(request.process, request.priority),
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
class Run:
    """The last known attempt of a request, and its execution; None if it has not started.

    Attributes:
        skipped: why it was skipped; "" if it was not.
        is_too_late: whether it has not started, and cannot any more, because its `start_before` has passed.
    """

    request: Request
    execution: Execution | None = None
    skipped: str = ""
    is_too_late: bool = False

    @property
    def status(self) -> str:
        """The status of the execution; without one `skipped`, `too late` or `not started`."""
        if self.execution is not None:
            return self.execution.status
        return "skipped" if self.skipped else "too late" if self.is_too_late else "not started"

    @property
    def was_returned(self) -> bool:
        """Whether the workflow has returned the request to the queue, as its next attempt."""
        return self.execution is not None and self.execution.error == RETURNED

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended, with or without success."""
        if self.execution is None:
            return bool(self.skipped) or self.is_too_late
        return self.execution.is_closed and not self.was_returned

    @property
    def has_failed(self) -> bool:
        """Whether the request has ended without success."""
        return self.has_ended and not self.skipped and self.status != "SUCCEEDED"

    @property
    def reason(self) -> str:
        """Why the attempt failed or was skipped; "" if neither."""
        return failure_reason(self.execution.cause) if self.execution else self.skipped

    @property
    def differences(self) -> list[str]:
        """The fields in which the executed request differs; if there are any, another request has used the id."""
        if self.execution is None:
            return []
        executed, submitted = fields_in(self.execution.input), fields_in(self.request.to_json())
        return sorted(name for name in {**executed, **submitted} if executed.get(name) != submitted.get(name))

    def as_dict(self) -> dict[str, Any]:
        """The outcome as JSON shows it."""
        error, cause = (self.execution.error, self.execution.cause) if self.execution else ("", "")
        return {"status": self.status, "error": error or None, "cause": cause or None, "reason": self.reason or None}


def read_runs(workflow: Workflow, runs: Sequence[Run]) -> list[Run]:
    """Read the execution of each attempt."""
    executions = in_parallel(lambda one: workflow.describe(one.request.execution_name), runs)
    return [Run(one.request, execution) for one, execution in zip(runs, executions, strict=True)]


def without_execution(skipped: SkippedRequests, run: Run, now: float) -> Run:
    """The run, with what is known of its request if it has no execution: that it was skipped, or is too late."""
    if run.execution is not None:
        return run
    if run.request.is_too_late(now - LATE_SECONDS):
        return replace(run, is_too_late=True)
    note = skipped.note_of(run.request.execution_name) if run.request.when_busy == "skip" else None
    return replace(run, skipped=note.reason) if note else run


def last_attempt(workflow: Workflow, run: Run) -> Run:
    """The last attempt: a returned request has a next one, a failed request only if it was redriven."""
    while run.was_returned or run.has_failed:
        again = Run(replace(run.request, attempt=run.request.attempt + 1))
        (read,) = read_runs(workflow, [again])
        if read.execution is None:
            return again if run.was_returned else run
        run = read
    return run
