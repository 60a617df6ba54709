"""`slotkeeper request show`: the state of each attempt of a request, and why a request waits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.slots.process import Process
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import current_context
from slotkeeper_cli.downstream_items import read_downstreams
from slotkeeper_cli.downstream_text import line, not_closed
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import count
from slotkeeper_cli.queue_attributes import received_or_visible
from slotkeeper_cli.request_finder import RequestAttempts, RequestFinder
from slotkeeper_cli.request_ids import RequestId
from slotkeeper_cli.request_states import ALL_STATES, RequestState
from slotkeeper_cli.request_text import FoundRequest, queue_text, render
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.waiting_requests import as_dict, holders_as_dicts, queue_cause, waiting_requests
from slotkeeper_cli.work_finder import WORK_QUEUES, find_work, is_deployed

HELP = f"""Show each attempt of a request, and why it waits.

Each attempt is {ALL_STATES}.

The command searches slots, executions, the dead-letter queues and the worker's ledger. RequestQueue cannot be searched,
so a request that is not found may be queued.
"""


def show(
    request_id: RequestId,
    process: Annotated[str | None, typer.Option(help="Search only this process.", autocompletion=process_names)] = None,
) -> None:
    """Show the state of each attempt of a request. `HELP` is the text of --help."""
    context = current_context()
    control = SlotControl(context.stack)
    known = [control.process(process)] if process else control.read_all()[0]
    finder = RequestFinder(context.stack, control)
    attempts = [one for one in finder.find(request_id, known) if one.attempts]
    if process is None:
        attempts += finder.find_without_process(request_id, known)
    found = FoundRequest(
        request_id,
        attempts,
        received_or_visible(context.stack, "RequestQueue"),
        ["SlotTable", "executions", "RequestDeadLetterQueue", "FailedRequestQueue"],
    )
    if found.attempts:
        found.request_id = found.attempts[0].request_id
    if process is None:
        _search_work(context.stack, found)
    may_be_queued = [one.process for one in found.attempts if _may_be_queued(one, found)]
    if found.queued and not found.is_known:
        may_be_queued = known
    found.queues = _queues(control, finder, may_be_queued)
    data = _as_dict(found)
    context.out.result(data, lambda console: render(console, found, data))
    if not found.is_known and not found.queued:
        raise NotFound(f"no request {request_id} found, and RequestQueue is empty: check the id")


def _search_work(stack: StackConnection, found: FoundRequest) -> None:
    if not is_deployed(stack):
        return
    found.searched.append("RequestLedgerTable")
    try:
        found.work = find_work(stack, found.request_id, search_dead_letters=not found.attempts)
    except MalformedRow as error:
        found.malformed = str(error)
    if not found.is_known:
        found.searched += [queue.full_name for queue in WORK_QUEUES]
    if not found.is_known or (found.work and found.work.state is RequestState.WAITING):
        row = found.work.row if found.work else None
        found.open_breakers = not_closed(read_downstreams(stack), row.downstream if row else "")


def _may_be_queued(one: RequestAttempts, found: FoundRequest) -> bool:
    """Whether the next attempt may be queued: the message of the last one was redriven, or deleted."""
    last = one.attempts[-1]
    return last.state is RequestState.FAILED and last.dlq_message is None and found.queued > 0


def _queues(control: SlotControl, finder: RequestFinder, processes: Iterable[Process]) -> list[dict[str, Any]]:
    """The requests ahead of a queued request, for each of these processes in which one may wait."""
    now = time.time()
    queues = []
    for one in processes:
        # A late redelivery registers a request that has run.
        waiting = [each for each in waiting_requests(one, now) if control.workflow.describe(each.execution) is None]
        if not waiting and one.fits(one.default_weight):
            continue
        queues.append(
            {
                "process": one.name,
                **queue_cause(one, waiting),
                "holders": holders_as_dicts(one, finder.request_ids, now),
                "waiting": [as_dict(one, each, now) for each in waiting],
            }
        )
    return queues


def _as_dict(found: FoundRequest) -> dict[str, Any]:
    data: dict[str, Any] = {
        "request_id": found.request_id,
        "found": [_attempts_as_dict(one, found) for one in found.attempts],
        "work": {"malformed": found.malformed} if found.malformed else found.work and found.work.as_dict(),
        "queued_messages": found.queued,
        "searched": found.searched,
    }
    if found.queues:
        data["queues"] = found.queues
    if found.open_breakers:
        data["open_breakers"] = found.open_breakers
    if not found.is_known:
        data |= ({"state": RequestState.PERHAPS_QUEUED} if found.queued else {}) | {"may_be": _possibilities(found)}
    return data


def _attempts_as_dict(one: RequestAttempts, found: FoundRequest) -> dict[str, Any]:
    data: dict[str, Any] = {
        "process": one.process.name,
        "request_id": one.request_id,
        "state": one.attempts[-1].state,
        "attempts": [attempt.as_dict() for attempt in one.attempts],
    }
    if _may_be_queued(one, found):
        data["next_attempt"] = {
            "attempt": one.next_number,
            "execution": one.name_of(one.next_number),
            "state": RequestState.PERHAPS_QUEUED,
        }
    return data


def _possibilities(found: FoundRequest) -> list[str]:
    texts = []
    if found.queued:
        ahead = "; ".join(queue_text(queue) for queue in found.queues)
        messages = f"RequestQueue has about {count(found.queued, 'message')} of all processes"
        texts.append(f"it is queued, {ahead}: {messages}" if ahead else f"it is queued: {messages}")
    texts += [f"it is a request of the worker, held back: {line(one, time.time())}" for one in found.open_breakers]
    if "RequestLedgerTable" in found.searched and not found.open_breakers:
        texts.append(
            "it is a request of the worker without an attempt yet: it is on WorkQueue, which cannot be searched"
        )
    return [
        *texts,
        "it was never sent, or SQS refused it",
        "it ended more than 90 days ago, after which Step Functions deletes an execution",
        "its dead-letter message was deleted, or expired after 14 days",
    ]
