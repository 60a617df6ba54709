"""`slotkeeper request`: submit, show and cancel requests."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.cancellation import KEEP_SECONDS, MAX_CANCELLATIONS, CancelOutcome
from slotkeeper.slots.process import Process
from slotkeeper_cli.audit import audit
from slotkeeper_cli.commands.submit import submit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandRefused, NotFound
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.queue_attributes import received_or_visible
from slotkeeper_cli.request_finder import RequestAttempt, RequestAttempts, RequestFinder
from slotkeeper_cli.slot_control import SlotControl

app = typer.Typer(help="Submit, show and cancel requests.", no_args_is_help=True)

RequestId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the request, of its message if it was sent without one, or name of an execution."
    ),
]
STATES_WITH_A_SLOT = ("starting", "running")
NOT_RECEIVED = (
    " It has not been received yet: it is on RequestQueue, or not sent yet. If it is sent within "
    f"{duration(KEEP_SECONDS)}, it is dead-lettered."
)


app.command("submit", cls=StackCommand)(submit)


@app.command("show", cls=StackCommand)
def show(
    request_id: RequestId, process: Annotated[str | None, typer.Option(help="Search only this process.")] = None
) -> None:
    """Show the state of each attempt of a request: queued, running, succeeded, failed, dead-lettered or cancelled."""
    context = current_context()
    control = SlotControl(context.stack)
    known = [control.process(process)] if process else control.read_all()[0]
    request_attempts = [one for one in RequestFinder(context.stack, control).find(request_id, known) if one.attempts]
    queued = received_or_visible(context.stack, "RequestQueue")
    shown = [_as_dict(one, queued) for one in request_attempts]
    possibilities = [] if request_attempts else _possibilities(known, queued)

    def render(console: Console) -> None:
        for one, data in zip(request_attempts, shown, strict=True):
            _render(console, one, data)
        if not request_attempts:
            console.print(f"No request {request_id} found. Possible reasons:")
            for text in possibilities:
                console.print(f"- {text}")

    data = {
        "request_id": request_attempts[0].request_id if request_attempts else request_id,
        "found": shown,
        "queued_messages": queued,
    }
    context.out.result(data | ({"may_be": possibilities} if possibilities else {}), render)
    if not request_attempts and not queued:
        raise NotFound(f"no request {request_id} found, and RequestQueue is empty: check the id")


@app.command("cancel", cls=StackCommand)
def cancel(
    request_id: RequestId,
    process: Annotated[str, typer.Option(help="Process of the request.")],
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Number of the attempt; by default the one that may be queued.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop its execution and Glue run, if it is running.")] = False,
) -> None:
    """Cancel a queued request: it never starts, and is dead-lettered when its turn comes.

    A request that holds a slot is no longer queued; --stop ends its execution. The janitor then stops its Glue run,
    releases its slot and sends the request to FailedRequestQueue.
    """
    context = current_context()
    control = SlotControl(context.stack)
    found = RequestFinder(context.stack, control).find(request_id, [control.process(process)])
    if not found:
        raise NotFound(f"{request_id} is not an execution of process {process}: give its own process with --process")
    candidates = [one for one in found[0].attempts if attempt in (None, one.number)]
    last = candidates[-1] if candidates else None
    number = attempt or (last.number if last and last.state in ("waiting", "cancelled") else found[0].next_number)
    if last is not None and last.state in STATES_WITH_A_SLOT:
        _stop(context, last, stop)
        return
    _refuse_unless_queued(last, attempt)
    if attempt is None and (last is None or last.state == "cancelled"):
        # The queued message of a redriven request cannot be seen.
        context.out.note(f"If the request was redriven, it is queued as a later attempt: give --attempt {number + 1}")
    is_known = last is not None and last.number == number
    _cancel(context, control, found[0], number, "" if is_known else NOT_RECEIVED)


def _cancel(context: CommandContext, control: SlotControl, of: RequestAttempts, number: int, warning: str) -> None:
    process, name = of.process.name, of.name_of(number)
    context.confirm(f"Cancel attempt {number} of request {of.request_id} ({process})?{warning}")
    audit("request cancel", process=process, request_id=of.request_id, attempt=number, execution=name)
    now = time.time()
    by = context.stack.caller.rpartition(":")[2].rpartition("/")[2]
    outcome = control.operations.cancel_request(process, name, now, by)
    if outcome is CancelOutcome.TOO_MANY:
        raise CommandRefused(
            f"process {process} has {MAX_CANCELLATIONS} cancelled requests, which is the maximum; each is removed "
            f"after {duration(KEEP_SECONDS)}. Pause the process, or stop the request when it runs. Nothing was changed."
        )
    if outcome is CancelOutcome.HOLDS_SLOT:
        raise CommandRefused(
            f"{name} has reserved a slot meanwhile: to end it, run this again with --stop. Nothing was changed."
        )
    _undo_cancel_if_it_ran(control, process, name)
    first = control.process(process).waiting_execution == name
    data = {"cancelled": name, "process": process, "request_id": of.request_id, "attempt": number}
    when = "immediately" if first else "when the requests before it have started"
    context.out.result(
        data | {"was_first": first, "until": iso(now + KEEP_SECONDS)},
        f"{of.request_id} (attempt {number}, {name}) is cancelled: it goes to RequestDeadLetterQueue {when}, with code "
        "Cancelled.",
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


def _stop(context: CommandContext, attempt: RequestAttempt, stop: bool) -> None:
    if attempt.state == "starting":
        raise CommandRefused(
            f"{attempt.execution} holds a slot and is being started: it is no longer queued. Run this again in some "
            "seconds with --stop. Nothing was changed."
        )
    if not stop:
        raise CommandRefused(
            f"{attempt.execution} has been running since {attempt.details['since']}: it is no longer queued. Give "
            "--stop to stop its execution and its Glue run. Nothing was changed."
        )
    context.confirm(f"Stop {attempt.execution}, running since {attempt.details['since']}, and its Glue run?")
    run = attempt.details.get("glue_run")
    audit("request cancel", stop=True, process=attempt.process, execution=attempt.execution, glue_run=run)
    context.stack.client("stepfunctions").stop_execution(
        executionArn=context.stack.execution_arn(attempt.execution),
        error="Cancelled",
        cause=f"slotkeeper request cancel, by {context.stack.caller}",
    )
    context.out.result(
        {"stopped": attempt.execution, "process": attempt.process, "attempt": attempt.number},
        f"{attempt.execution} is stopped. Within minutes the janitor stops its Glue run, sends the request to "
        "FailedRequestQueue, and releases its slot.",
    )


def _refuse_unless_queued(last: RequestAttempt | None, attempt: int | None) -> None:
    if last is None:
        return
    if last.dlq_message is not None and last.state not in ("succeeded", "finishing"):
        message = f"{last.dlq_message.queue.full_name} ({last.dlq_message.code})"
        raise CommandRefused(f"{last.execution} is not queued: it is in {message}. Nothing was changed.")
    if last.state in ("succeeded", "finishing") or (last.state == "failed" and attempt is not None):
        status = last.details["status"]
        raise CommandRefused(f"{last.execution} has run ({status}): there is nothing to cancel. Nothing was changed.")


def _as_dict(request_attempts: RequestAttempts, queued: int) -> dict[str, Any]:
    last = request_attempts.attempts[-1]
    data: dict[str, Any] = {
        "process": request_attempts.process.name,
        "request_id": request_attempts.request_id,
        "state": last.state,
        "attempts": [one.as_dict() for one in request_attempts.attempts],
    }
    # A failed request without its message in FailedRequestQueue was redriven, or its message was deleted.
    if last.state == "failed" and last.dlq_message is None and queued:
        data["next_attempt"] = {
            "attempt": request_attempts.next_number,
            "execution": request_attempts.name_of(request_attempts.next_number),
            "state": "perhaps queued",
        }
    return data


def _possibilities(processes: list[Process], queued: int) -> list[str]:
    texts = []
    if queued:
        first = [f"{one.name}: {one.waiting_execution}" for one in processes if one.waiting_execution]
        behind = f", behind the first waiting requests ({'; '.join(first)})" if first else ""
        texts.append(f"it is queued{behind}: RequestQueue has about {count(queued, 'message')} of all processes")
    return [
        *texts,
        "it was never sent, or SQS refused it",
        "it ended more than 90 days ago, after which Step Functions deletes an execution",
        "its dead-letter message was deleted, or expired after 14 days",
    ]


def _render(console: Console, request_attempts: RequestAttempts, data: dict[str, Any]) -> None:
    console.print(f"{request_attempts.request_id} in {request_attempts.process.name}: {data['state']}", style="bold")
    for attempt in request_attempts.attempts:
        console.print(f"  attempt {attempt.number}: {attempt.state}  {attempt.execution}")
        for name, value in attempt.details.items():
            if value and name != "cause":
                console.print(f"    {name.replace('_', ' ')}: {_shown(name, value)}")
        if dead_letter := attempt.dlq_message:
            reason = "" if "reason" in attempt.details else f": {dead_letter.reason}"
            message = f"{dead_letter.message_id} in {dead_letter.queue.full_name}"
            console.print(f"    dead-letter message: {message}, {dead_letter.code}{reason}")
    if next_attempt := data.get("next_attempt"):
        console.print(f"  attempt {next_attempt['attempt']}: perhaps queued  {next_attempt['execution']}")


def _shown(name: str, value: Any) -> str:
    if name in ("since", "started", "ended"):
        return local_time(datetime.fromisoformat(value).timestamp())
    return f"{value['state']} {value['id']}" if isinstance(value, dict) else str(value)
