"""Submits requests: checks them by the rules of the starter, sends them to RequestQueue, and reads their rows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.next_step import next_step
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.intake import digest_of
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import MAX_BODY_BYTES, Delivery, InvalidRequest, Request, parse_request
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import GLUE_JOB, STATE_MACHINE, kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.errors import CommandError, NotFound, failure_text
from slotkeeper_cli.formatting import count, cut, local_time
from slotkeeper_cli.requests import failure_of, hide_tokens, message_of, state_of
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.slot_control import add_command, no_process, repair_texts
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.target_checks import target_text

BATCH = 10  # SQS API Reference, SendMessageBatch
TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled at each try
UNKNOWN = "may have been sent; sending it again has no second effect"
# States after which the request that was sent is the next attempt.
_NEXT = ("RETURNED", "REDRIVEN")
_OPTIONS = {"arguments": "--arg"}


class InvalidRequests(CommandError):
    """Requests that the starter would dead-letter, each with its line number. Nothing was sent."""

    exit_code = 2


@dataclass(frozen=True)
class Submitted:
    """A request to send, with its row.

    Attributes:
        number: of its line.
        request: its attempt is that of the row, or the one that is expected.
        row: of its last attempt; None if it has none yet.
        message_id: of the message that has brought it; empty if it was not sent.
        error: why it was not sent; empty if it was, or was not tried.
    """

    number: int
    request: Request
    row: RequestRow | None = None
    message_id: str = ""
    error: str = ""

    @property
    def state(self) -> str:
        """The state of the row; without one `not accepted`."""
        return state_of(self.row.state) if self.row else "not accepted"

    @property
    def is_of_message(self) -> bool:
        """Whether its message has brought the row."""
        return self.row is not None and bool(self.message_id) and self.row.message_id == self.message_id

    @property
    def is_other(self) -> bool:
        """Whether another request has used the id, so that this one does not run."""
        if self.row is None:
            return False
        is_same = self.is_of_message or self.row.digest == digest_of(self.request)
        return self.row.code == "RequestIdReused" or not is_same

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended, with or without success, or does not run."""
        return self.is_other or (self.row is not None and self.row.state not in ("QUEUED", "STARTED", *_NEXT))

    def as_dict(self, *, outcome: bool = False) -> dict[str, Any]:
        """The request as JSON shows it; with `outcome` also where it is, or how it ended."""
        request, row = self.request, self.row
        shown: dict[str, Any] = {
            "request_id": request.request_id,
            "process": request.process,
            "execution": request.execution_name,
            "priority": request.priority,
            "weight": request.weight,
            "key": request.key or None,
        }
        more = {"start_before": request.start_before, "message_id": self.message_id, "error": self.error}
        shown |= {"when_busy": request.when_busy} if request.when_busy != "wait" else {}
        shown |= {name: value for name, value in more.items() if value}
        if not outcome:
            return shown
        code, reason, cause = (row.code, hide_tokens(failure_of(row)), hide_tokens(row.cause)) if row else ("", "", "")
        return shown | {"state": self.state, "code": code or None, "reason": reason or None, "cause": cause or None}


def read_lines(lines: Iterable[str]) -> list[Submitted]:
    """The requests of a file with one JSON object per line. Empty lines are skipped.

    A request without an id receives one here, so that sending it again after a lost response repeats the same request.

    Raises:
        InvalidRequests: a request is invalid, or repeats the process and id of another, so that it would not run.
    """
    found: list[Submitted] = []
    errors: list[str] = []
    numbers: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            found.append(Submitted(number, _checked(text)))
        except InvalidRequest as error:
            errors.append(f"line {number}: {error}")
            continue
        first = numbers.setdefault(found[-1].request.execution_name, number)
        if first != number:
            errors.append(f"line {number}: repeats the process and request_id of line {first}")
    if errors:
        raise InvalidRequests("invalid requests; correct them and submit all again.", *errors, "Nothing was sent.")
    return found


def read_options(process: str, arguments: Sequence[str], given_input: str | None, fields: Mapping[str, Any]) -> Request:
    """The request that options state. Raises typer.BadParameter, which names the option.

    Args:
        arguments: each KEY=VALUE.
        given_input: JSON, or @ and the name of a file with JSON.
        fields: the others, by their names in a request.
    """
    named = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--arg must be KEY=VALUE, as in --arg=--day=2026-11-21, got {text!r}")
        named[key if key.startswith("--") else f"--{key}"] = value
    stated = {"arguments": named} if named or given_input is None else {}
    body = json.dumps({"process": process, **stated, **fields})
    if given_input is not None:
        # As it was written: a parsed number no longer has its digits.
        body = f'{body[:-1]}, "input": {_json_object(given_input)}}}'
    try:
        return _checked(body)
    except InvalidRequest as error:
        text = re.sub(r"body\.(\w+)", lambda name: _OPTIONS.get(name[1], f"--{name[1].replace('_', '-')}"), str(error))
        raise typer.BadParameter(f"{text}. Nothing was sent.") from error


def _json_object(given: str) -> str:
    try:
        text = Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f'--input cannot be read: {error}. Expected is a JSON object, such as \'{{"day": "2026-11-21"}}\', or '
            "@FILE. Nothing was sent."
        ) from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"--input must be a JSON object, got {cut(text)}. Nothing was sent.")
    return text


def _checked(body: str) -> Request:
    """Parse a request, and give it an id if it has none. Raises InvalidRequest."""
    request = parse_request(Delivery(str(uuid4()), body, "", "0", 0.0))
    if request.deadline is not None and time.time() >= request.deadline:
        shown = f"start_before {request.start_before} ({local_time(request.deadline)})"
        raise InvalidRequest(f"{shown} has passed, so it would never start")
    if request.task_token:
        raise InvalidRequest("it has a task_token, which only the task that waits for the answer can send: remove it")
    if (size := len(request.to_json().encode())) > MAX_BODY_BYTES:
        raise InvalidRequest(f"it has {size:,} bytes; the maximum is {MAX_BODY_BYTES:,}")
    return request


def check_processes(account: Account, lines: Sequence[Submitted]) -> Iterator[str]:
    """Check the processes of requests; yield a warning for each that keeps its requests from starting.

    Raises:
        NotFound: a process does not exist.
        InvalidRequests: a request does not fit the target of its process, or its process is for leases only.
    """
    known = account.by_name()
    wanted: dict[str, list[Request]] = {}
    for one in lines:
        wanted.setdefault(one.request.process, []).append(one.request)
    if unknown := sorted(wanted.keys() - known.keys()):
        raise NotFound(
            " ".join(no_process(each, known) for each in unknown)
            + f" The processes are: {', '.join(sorted(known)) or 'none'}. Its requests would be rejected: add it "
            f"first, with {add_command(unknown[0])}. Nothing was sent."
        )
    found = {name: process for name in sorted(wanted) if isinstance(process := known.get(name), Process)}
    if errors := [text for name, of in found.items() for one in wanted[name] if (text := _misfit(one, of.target))]:
        raise InvalidRequests("requests do not fit the target of their process.", *errors, "Nothing was sent.")
    for text in repair_texts(item for name in wanted if isinstance(item := known.get(name), MalformedProcess)):
        yield f"its requests wait until it is repaired: {text}"
    for name, process in found.items():
        if process.paused:
            yield f"process {name} is paused. Resume it with: {next_step('process resume', name)}"
        weights = [one.weight or process.default_weight for one in wanted[name]]
        if blocked := [weight for weight in weights if weight > process.slot_limit]:
            yield (
                f"{count(len(blocked), 'request')} of {name} above the limit {process.slot_limit} (largest weight: "
                f"{max(blocked)}). Such a request waits until the limit is raised: "
                f"{next_step('process set-limit', name, max(blocked))}"
            )
        for key in dict.fromkeys(one.key for one in wanted[name]):
            heaviest = max(weight for weight, one in zip(weights, wanted[name], strict=True) if one.key == key)
            if (limit := process.limit_of(key)) is not None and limit < heaviest <= process.slot_limit:
                step = next_step("process set-key-limit", name, heaviest, key=key or None)
                yield f"weight {heaviest} above the limit {limit} of {of_key(key)} of {name}, so it waits until {step}"


def _misfit(one: Request, target: str) -> str:
    """Why the target of its process does not run a request; empty if it does."""
    if target == NO_TARGET:
        return f"{one.request_id}: process {one.process} is for leases only, it runs no requests"
    if kind_of(target) is STATE_MACHINE and one.arguments:
        return f"{one.request_id}: {target_text(target)} takes an input (--input), not arguments"
    if kind_of(target) is GLUE_JOB and one.input is not None:
        return f"{one.request_id}: {target_text(target)} takes arguments (--arg), not an input"
    return ""


def send_all(stack: StackConnection, given: Sequence[Submitted], note: Callable[[str], None]) -> Iterator[Submitted]:
    """Send requests in order, in batches of ten, up to a call that fails. Each has then a message id, or an error.

    Requests that SQS refuses are sent again, and are then behind the accepted ones of their group. Their deduplication
    id stays, so a request that SQS accepted although it reported a failure is not queued twice.

    Args:
        note: receives a text for each batch that is sent again.
    """
    has_failed = False
    for batch in batched(given, BATCH, strict=False):
        if has_failed:
            yield from (replace(one, error="not sent") for one in batch)
            continue
        try:
            yield from _send_batch(stack, batch, note)
        except (BotoCoreError, ClientError) as error:
            has_failed = True
            yield from (replace(one, error=f"{UNKNOWN} ({failure_text(error)})") for one in batch)


def _send_batch(stack: StackConnection, batch: Sequence[Submitted], note: Callable[[str], None]) -> Iterable[Submitted]:
    sqs, url = stack.client("sqs"), stack.outputs["RequestQueueUrl"]
    messages = {str(at): {"Id": str(at), **message_of(one.request)} for at, one in enumerate(batch)}
    outcomes: dict[str, Submitted] = {}
    left = [*messages]
    for attempt in range(TRIES):
        if attempt:
            note(f"SQS refused {len(left)} of {len(batch)} requests ({outcomes[left[0]].error}): trying again.")
            time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
        answer = sqs.send_message_batch(QueueUrl=url, Entries=[messages[each] for each in left])
        for one in answer.get("Successful", []):
            outcomes[one["Id"]] = replace(batch[int(one["Id"])], message_id=one["MessageId"])
        refused = answer.get("Failed", [])
        for one in refused:
            outcomes[one["Id"]] = replace(batch[int(one["Id"])], error=f"{one['Code']}: {one.get('Message', '')}")
        # A second try does not help if the fault is the sender's.
        left = [one["Id"] for one in refused if not one["SenderFault"]]
        if not left:
            break
    return [outcomes[each] for each in messages]


def with_rows(rows: RowSearch, given: Iterable[Submitted]) -> list[Submitted]:
    """Requests with the rows of their last attempts, in a call for a hundred of each attempt.

    An attempt that ended without a start is the last one only if this message has brought it: a message of the same id
    becomes the next one (intake.py).
    """
    known = dict(enumerate(given))
    pending = dict(known)
    while pending:
        names = [(one.request.process, one.request.execution_name) for one in pending.values()]
        read = {(row.process, row.execution): row for row in rows.named(dict.fromkeys(names)).rows}
        found = {at: replace(one, row=read.get(name)) for (at, one), name in zip(pending.items(), names, strict=True)}
        known |= found
        pending = {
            at: replace(one, request=replace(one.request, attempt=one.request.attempt + 1))
            for at, one in found.items()
            if one.row and (one.row.state in _NEXT or (one.row.state in ENDED_WITHOUT_START and not one.is_of_message))
        }
    return [*known.values()]
