"""`slotkeeper request`: what became of a request, and keeping one from running."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.cancellation import KEPT, MOST
from slotkeeper.slots.process import Process
from slotkeeper_cli.audit import audit
from slotkeeper_cli.commands.submit import submit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import NotFound, Refused
from slotkeeper_cli.finding import Attempt, Finder, Found
from slotkeeper_cli.words import count, duration, iso, local_time

app = typer.Typer(help="Requests for a slot: submit, show and cancel them.", no_args_is_help=True)

RequestId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The request's id, its message's if it was sent without one, or its execution."),
]
WITH_A_SLOT = ("starting", "running")
UNSENT = f"if nobody has sent it yet, one that is sent within {duration(KEPT)} is set aside."


app.command("submit", cls=StackCommand)(submit)


@app.command("show", cls=StackCommand)
def show(
    request_id: RequestId,
    process: Annotated[str | None, typer.Option(help="Only in this process.", show_default=False)] = None,
) -> None:
    """What became of a request, attempt by attempt: queued, running, done, failed, dead-lettered or cancelled."""
    here = cli()
    control = Control(here.stack)
    known = _processes(control, process)
    found = [one for one in Finder(here.stack, control).find(request_id, known) if one.attempts]
    queued = _queue_length(here)
    as_told = [_told(one, queued) for one in found]
    may_be = [] if found else _may_be(known, queued)

    def render(console: Console) -> None:
        for one, told in zip(found, as_told, strict=True):
            _render(console, one, told)
        if not found:
            console.print(f"Nothing is known of {request_id}. It may be that", markup=False)
            for text in may_be:
                console.print(f"- {text}", markup=False)

    told = {"request_id": found[0].request_id if found else request_id, "found": as_told, "queued_messages": queued}
    here.out.result(told | ({"may_be": may_be} if may_be else {}), render)
    if not found and not queued:
        raise NotFound(f"nothing is known of a request {request_id}, and RequestQueue is empty")


@app.command("cancel", cls=StackCommand)
def cancel(
    request_id: RequestId,
    process: Annotated[str, typer.Option(help="Its process.")],
    attempt: Annotated[
        int | None, typer.Option(min=1, help="This attempt; else the one that may be queued.", show_default=False)
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="If it runs already, stop its execution and its Glue run.")
    ] = False,
) -> None:
    """Keep a queued request from ever starting: it is set aside in RequestDeadLetterQueue instead.

    A request that has its slot already is not queued any more; --stop ends its execution. The janitor then stops its
    Glue run, frees its slot and keeps the request in FailedRequestQueue.
    """
    here = cli()
    control = Control(here.stack)
    everywhere = Finder(here.stack, control).find(request_id, [control.process(process)])
    if not everywhere:
        raise NotFound(f"{request_id} is an execution of another process than {process}")
    (found,) = everywhere
    last = found.attempts[-1] if found.attempts else None
    if attempt is not None:
        last = next((one for one in found.attempts if one.number == attempt), None)
    number = attempt or (last.number if last and last.state in ("waiting", "cancelled") else found.next_number)
    if last is not None and last.state in WITH_A_SLOT:
        _stop(here, last, stop)
        return
    _refuse_what_is_over(last, attempt)
    if attempt is None and (last is None or last.state == "cancelled"):
        # A letter that was redriven has left nothing behind, or the note of an attempt that was cancelled before.
        here.out.note(f"If a letter of it was redriven, it waits as a later attempt: --attempt {number + 1}")
    _cancel(here, control, found, number, last)


def _cancel(here: Cli, control: Control, found: Found, number: int, last: Attempt | None) -> None:
    process, name = found.process.name, found.name_of(number)
    unseen = (
        "" if last and last.number == number else f" Nothing is known of it yet: it is on RequestQueue, or {UNSENT}"
    )
    here.confirm(f"Cancel attempt {number} of request {found.request_id} ({process})?{unseen}")
    audit("request cancel", process=process, request_id=found.request_id, attempt=number, execution=name)
    who = here.stack.client("sts").get_caller_identity()["Arn"].rpartition(":")[2].rpartition("/")[2]
    now = time.time()
    outcome = control.operations.cancel_request(process, name, now, who)
    if outcome == "too many":
        raise Refused(
            f"process {process} has {MOST} cancelled requests, which is as many as it keeps: each is forgotten after "
            f"{duration(KEPT)}. Pause the process, or let the request run and stop it. Nothing was changed."
        )
    if outcome == "holds a slot":
        raise Refused(f"{name} has taken a slot this very moment: to end it, run this again with --stop")
    _take_back_if_it_ran(control, process, name)
    first = control.process(process).waiting_execution == name
    told = {
        "cancelled": name,
        "process": process,
        "request_id": found.request_id,
        "attempt": number,
        "was_first": first,
        "until": iso(now + KEPT),
    }
    when = "at once" if first else "when those before it have started"

    def render(console: Console) -> None:
        console.print(
            f"{found.request_id} (attempt {number}, {name}) is cancelled: it is set aside in RequestDeadLetterQueue "
            f"{when}, with code Cancelled.",
            markup=False,
        )

    here.out.result(told, render)


def _take_back_if_it_ran(control: Control, process: str, name: str) -> None:
    """It was started and gave its slot back while the command looked: the note would call that a cancellation."""
    execution = control.workflow.describe(name)
    if execution is None:
        return
    note = control.process(process).cancelled.get(name)
    if note is not None:
        control.processes.cancellations.drop(process, name, note)
    raise Refused(f"{name} has run meanwhile ({execution.status}): it was not cancelled")


def _stop(here: Cli, attempt: Attempt, stop: bool) -> None:
    if attempt.state == "starting":
        raise Refused(
            f"{attempt.execution} has its slot and is just being started: it is not queued any more. "
            "Look again in some seconds, and stop it by --stop. Nothing was changed."
        )
    if not stop:
        raise Refused(
            f"{attempt.execution} runs, since {attempt.details['since']}: it is not queued any more. "
            "Give --stop to stop its execution and its Glue run. Nothing was changed."
        )
    here.confirm(f"Stop {attempt.execution}, which runs since {attempt.details['since']}, and its Glue run?")
    audit(
        "request cancel",
        stop=True,
        process=attempt.process,
        execution=attempt.execution,
        glue_run=attempt.details.get("glue_run"),
    )
    who = here.stack.client("sts").get_caller_identity()["Arn"]
    here.stack.client("stepfunctions").stop_execution(
        executionArn=here.stack.execution_arn(attempt.execution),
        error="Cancelled",
        cause=f"slotkeeper request cancel, by {who}",
    )
    told = {"stopped": attempt.execution, "process": attempt.process, "attempt": attempt.number}

    def render(console: Console) -> None:
        console.print(
            f"{attempt.execution} is stopped. Within minutes the janitor stops its Glue run, keeps the request in "
            "FailedRequestQueue, and frees its slot.",
            markup=False,
        )

    here.out.result(told, render)


def _refuse_what_is_over(last: Attempt | None, attempt: int | None) -> None:
    if last is None:
        return
    if last.state in ("succeeded", "finishing"):
        raise Refused(f"{last.execution} has run ({last.details['status']}): there is nothing to cancel")
    if last.letter is not None:
        where = last.letter.queue.full_name
        raise Refused(f"{last.execution} is not queued: it stands in {where} ({last.letter.code})")
    if last.state == "failed" and attempt is not None:
        raise Refused(f"{last.execution} has run ({last.details['status']}): there is nothing to cancel")


def _processes(control: Control, only: str | None) -> list[Process]:
    if only:
        return [control.process(only)]
    return [one for one in control.processes.all() if isinstance(one, Process)]


def _queue_length(here: Cli) -> int:
    counted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    told = here.stack.client("sqs").get_queue_attributes(
        QueueUrl=here.stack.outputs["RequestQueueUrl"], AttributeNames=counted
    )["Attributes"]
    return sum(int(told[name]) for name in counted)


def _told(found: Found, queued: int) -> dict[str, Any]:
    last = found.attempts[-1]
    told: dict[str, Any] = {
        "process": found.process.name,
        "request_id": found.request_id,
        "state": last.state,
        "attempts": [one.told() for one in found.attempts],
    }
    # A letter that is gone was redriven, or somebody removed it.
    again = last.state == "failed" and last.letter is None
    if again and queued:
        told["next_attempt"] = {
            "attempt": found.next_number,
            "execution": found.name_of(found.next_number),
            "state": "perhaps queued",
        }
    return told


def _may_be(processes: list[Process], queued: int) -> list[str]:
    texts = []
    if queued:
        first = [f"{one.name}: {one.waiting_execution}" for one in processes if one.waiting_execution]
        behind = f", behind those that were last seen waiting first ({'; '.join(first)})" if first else ""
        texts.append(f"it is queued{behind}; RequestQueue has about {count(queued, 'message')} of all processes")
    return [
        *texts,
        "it was never sent, or SQS refused it",
        "it ended more than 90 days ago, when Step Functions forgets an execution",
        "its letter was removed from a dead-letter queue, or the queue's 14 days were over",
    ]


def _render(console: Console, found: Found, told: dict[str, Any]) -> None:
    console.print(f"{found.request_id} in {found.process.name}: {told['state']}", markup=False, style="bold")
    for attempt in found.attempts:
        console.print(f"  attempt {attempt.number}: {attempt.state}  {attempt.execution}", markup=False)
        for name, value in attempt.details.items():
            if value:
                console.print(f"    {name.replace('_', ' ')}: {_shown(name, value)}", markup=False)
        if letter := attempt.letter:
            console.print(
                f"    letter: {letter.message_id} in {letter.queue.full_name}, {letter.code}: {letter.reason}",
                markup=False,
            )
    if again := told.get("next_attempt"):
        console.print(f"  attempt {again['attempt']}: perhaps queued  {again['execution']}", markup=False)


def _shown(name: str, value: Any) -> str:
    if name in ("since", "started", "ended"):
        return local_time(datetime.fromisoformat(value).timestamp())
    return f"{value['state']} {value['id']}" if isinstance(value, dict) else str(value)
