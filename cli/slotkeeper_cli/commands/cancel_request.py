"""`slotkeeper request cancel`: cancel a queued request, or stop a running one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from slotkeeper.slots.process import KEEP_SECONDS
from slotkeeper.slots.processes import MAX_CANCELLATIONS, CancelOutcome
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandRefused, NotFound
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.holders import estimate, release_of
from slotkeeper_cli.request_finder import RequestAttempt, RequestAttempts, RequestFinder
from slotkeeper_cli.request_ids import RequestId
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.slot_control import SlotControl, repair_texts

NOT_RECEIVED = (
    " It has not been received yet: it is on RequestQueue, or not sent yet. If it is sent within "
    f"{duration(KEEP_SECONDS)}, it is dead-lettered."
)

_QUEUED = (RequestState.WAITING, RequestState.QUEUED, RequestState.CANCELLED)


def cancel(
    request_id: RequestId,
    process: Annotated[
        str | None,
        typer.Option(
            help="Process of the request; needed if several processes could have it.", autocompletion=process_names
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of the attempt; by default the one that may be queued."),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop its execution and what it runs, if it is running.")
    ] = False,
) -> None:
    """Cancel a queued request, so that it never starts.

    It is dead-lettered when its turn comes. A request that holds a slot is no longer queued; --stop ends its execution.
    The janitor then stops its Glue run or child execution, releases its slot and sends the request to
    FailedRequestQueue. The command prints by when the slot will be free.
    """
    context = current_context()
    control = SlotControl(context.stack)
    known, malformed = ([control.process(process)], []) if process else control.read_all()
    finder = RequestFinder(context.stack, control)
    searched = finder.find(request_id, known)
    if malformed and not any(one.attempts for one in searched):
        raise CommandRefused(
            f"no process that could be read has received request {request_id}: give its process with --process, or "
            "repair the malformed ones first. Nothing was changed. Not read:",
            *repair_texts(malformed),
        )
    for text in repair_texts(malformed):
        context.out.note(f"Warning: not searched: {text}")
    found = _only(searched, request_id, process)
    candidates = [one for one in found.attempts if attempt in (None, one.number)]
    last = candidates[-1] if candidates else None
    is_queued = last is not None and last.state in _QUEUED
    # 0 for the first in the queue if its attempt is not known.
    number = attempt or (last.number if last and is_queued else found.next_number)
    if last is not None and last.state in (RequestState.STARTING, RequestState.RUNNING):
        _stop(context, found, last, stop)
        return
    _refuse_unless_queued(found, last, attempt)
    if attempt is None and finder.search.missing("AuditLogGroup"):
        # The queued message of a redriven request cannot be seen, and the audit log would show its attempt.
        context.out.note(
            "The audit log could not be read. If the request was redriven, it is queued as a later attempt: give "
            f"--attempt {number + 1}"
        )
    is_known = last is not None and last.number == number
    _cancel(context, control, found, number, "" if is_known else NOT_RECEIVED)


def _only(found: Sequence[RequestAttempts], given: str, process: str | None) -> RequestAttempts:
    """The request in its process. Raises NotFound and CommandRefused, if that is not clear."""
    if not found:
        if process is None:
            raise NotFound(f"the process of {given} does not exist: list the processes with slotkeeper process list")
        raise NotFound(f"{given} is not an execution of process {process}: give its own process with --process")
    with_attempts = [one for one in found if one.attempts]
    if len(with_attempts) == 1 or len(found) == 1:
        return (with_attempts or list(found))[0]
    names = ", ".join(one.process.name for one in with_attempts or found)
    if with_attempts and len({one.process.name for one in with_attempts}) == 1:
        executions = ", ".join(one.attempts[-1].execution for one in with_attempts)
        raise CommandRefused(
            f"several callers have sent a request {given}: give the name of one execution, {executions}. Nothing was "
            "changed."
        )
    if with_attempts:
        raise CommandRefused(
            f"several processes have a request {given}: {names}. Give one with --process. Nothing was changed."
        )
    raise CommandRefused(
        f"no process has received request {given} yet, so its process is not known. Give it with --process: one of "
        f"{names}. Nothing was changed."
    )


def _cancel(context: CommandContext, control: SlotControl, of: RequestAttempts, number: int, warning: str) -> None:
    process, name = of.process.name, of.name_of(number)
    context.confirm(f"Cancel attempt {number or 'unknown'} of request {of.request_id} ({process})?{warning}")
    audit("request cancel", process=process, request_id=of.request_id, attempt=number, execution=name)
    now = time.time()
    by = context.stack.caller.rpartition(":")[2].rpartition("/")[2]
    # Before the cancellation, which ends the registration.
    first = any(waiting.execution == name for waiting in control.process(process).waiting.values())
    outcome = control.operations.cancel_request(process, name, now, by)
    if outcome is CancelOutcome.TOO_MANY:
        raise CommandRefused(
            f"process {process} has {MAX_CANCELLATIONS} cancelled requests, which is the maximum; each is removed "
            f"after {duration(KEEP_SECONDS)}. Pause the process, or stop the request when it runs. Nothing was changed."
        )
    if outcome is CancelOutcome.HOLDS_SLOT:
        raise CommandRefused(
            f"{of.request_id} ({name}) has reserved a slot meanwhile: to end it, run this again with --stop. Nothing "
            "was changed."
        )
    _undo_cancel_if_it_ran(control, process, name)
    data = {"cancelled": name, "process": process, "request_id": of.request_id, "attempt": number or None}
    when = "immediately" if first else "when the requests before it have started"
    context.out.result(
        data | {"was_first": first, "until": iso(now + KEEP_SECONDS)},
        f"{of.request_id} (attempt {number or 'unknown'}, {name}) is cancelled: it goes to RequestDeadLetterQueue "
        f"{when}, with code Cancelled.",
    )


def _undo_cancel_if_it_ran(control: SlotControl, process: str, name: str) -> None:
    """Undo the cancellation of an attempt that started and released its slot since the command read its state."""
    execution = control.workflow.describe(name)
    if execution is None:
        return
    cancellation = control.process(process).cancelled.get(name)
    if cancellation is not None:
        control.processes.cancellations.drop(process, name, cancellation)
    raise CommandRefused(f"{name} has run meanwhile ({execution.status}): it was not cancelled. Nothing was changed.")


def _stop(context: CommandContext, of: RequestAttempts, attempt: RequestAttempt, stop: bool) -> None:
    label = f"{of.request_id} ({attempt.execution})"
    target = attempt.details["target"]
    noun = kind_of(target).work_noun
    if attempt.state is RequestState.STARTING:
        raise CommandRefused(
            f"{label} holds a slot and is being started: it is no longer queued. Run this again in some "
            "seconds with --stop. Nothing was changed."
        )
    if not stop:
        raise CommandRefused(
            f"{label} has been running since {attempt.details['since']}: it is no longer queued. Give "
            f"--stop to stop its execution and its {noun}. Nothing was changed."
        )
    context.confirm(f"Stop {label}, running since {attempt.details['since']}, and its {noun}?")
    work = attempt.details[kind_of(target).work_key]
    names = {"process": attempt.process, "request_id": of.request_id, "execution": attempt.execution}
    audit("request cancel", stop=True, **names, **{kind_of(target).work_key: work})
    stopped = context.stack.client("stepfunctions").stop_execution(
        executionArn=context.stack.execution_arn(attempt.execution),
        error="Cancelled",
        cause=f"slotkeeper request cancel, by {context.stack.caller}",
    )
    release = estimate(
        context.stack.parameters, stopped["stopDate"].timestamp(), target, work, of.process.settle_seconds
    )
    data = {"stopped": attempt.execution, "process": attempt.process, "attempt": attempt.number}
    context.out.result(
        data | {"request_id": of.request_id} | release.as_dict(),
        f"{label} is stopped. The janitor stops its {noun}, sends the request to FailedRequestQueue, and releases "
        f"its slot {release.text(time.time())}.",
    )


def _refuse_unless_queued(of: RequestAttempts, last: RequestAttempt | None, attempt: int | None) -> None:
    if last is None:
        return
    label = f"{of.request_id} ({last.execution})"
    if last.state is RequestState.STOPPED:
        free = release_of(last.details).text(time.time())
        raise CommandRefused(
            f"{label} has ended ({last.details['status']}): there is nothing to cancel. Its slot will be free {free}. "
            "Nothing was changed."
        )
    if last.dlq_message is not None and last.state not in (RequestState.SUCCEEDED, RequestState.FINISHING):
        message = f"{last.dlq_message.queue.full_name} ({last.dlq_message.code})"
        raise CommandRefused(f"{label} is not queued: it is in {message}. Nothing was changed.")
    if last.state is RequestState.SKIPPED:
        raise CommandRefused(f"{label} was skipped: there is nothing to cancel. Nothing was changed.")
    is_failed = last.state is RequestState.FAILED and attempt is not None
    if last.state in (RequestState.SUCCEEDED, RequestState.FINISHING) or is_failed:
        status = last.details["status"]
        raise CommandRefused(f"{label} has run ({status}): there is nothing to cancel. Nothing was changed.")
