"""The code of starter, function of endings, janitor, operators and leases as actors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import dynamodb as dynamodb_adapter
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger
from slotkeeper.slots import lease_protocol
from slotkeeper.slots.callers import Callers
from slotkeeper.slots.closed_executions import ClosedExecutions, EndMessages
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.dispatch import Tools
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.endings import Endings, Retention
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.leases import Leases, Length, SlotLost, SlotUnavailable
from slotkeeper.slots.notices import FailureNotices
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestDeadLetterQueue
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import Delivery
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.returns import NotRequeued, Requeues
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.starter import Observer, Starter
from slotkeeper.slots.starts import AGE_SECONDS, ReservationStarter, Starts
from slotkeeper.slots.work import Children, GlueRuns
from tests.simulation.aws.stepfunctions import WORKFLOW
from tests.simulation.transcript import Outside, Program, Question
from tests.simulation.workflow import BELLS, ROWS, SLOTS

REQUESTS, DEAD_LETTERS, ENDINGS = "requests.fifo", "dead-letters.fifo", "endings"
VISIBILITY, ENDING_VISIBILITY = 180, 360  # seconds, of the starter's queues and of EndingQueue, as in template.yaml
RETENTION = 30 * 86400  # seconds
AGE = AGE_SECONDS
LEASE_SECONDS, EXTEND_SECONDS = 60, 30
POLL_SECONDS = 10  # of a caller that waits for a lease; a second at most in the code, which only makes more states
RUNS_BLOCK, LEAVES_BLOCK = Question("actor", "runs block", None), Question("actor", "leaves block", None)

lease_protocol.logger.setLevel("CRITICAL")
logger.setLevel("CRITICAL")  # formatting the log would take longer than the rest of the simulation
dynamodb_adapter.CONFLICT_WAITS = (0.0,) * 6  # a world's time is not the machine's


def in_turn[T, R](work: Callable[[T], R], listed: Sequence[T]) -> list[R]:
    """Instead of threads, so that a world decides the order."""
    results = []
    for each in listed:
        results.append(work(each))
    return results


def _tools(outside: Outside) -> Tools:
    dynamodb = outside.client("dynamodb")
    grants, rows = Grants(dynamodb, SLOTS), RequestTable(dynamodb, ROWS, SLOTS)
    starts = Starts(outside.client("stepfunctions"), WORKFLOW)
    starter = ReservationStarter(starts, grants, rows, outside.clock, each=in_turn)
    doorbell = Doorbell(outside.client("sqs"), BELLS)
    return Tools(
        grants, rows, starter, doorbell, AGE, clock=outside.clock, sleep=outside.sleep, jitter=lambda _, high: high
    )


def _events(outside: Outside) -> CompletionEvents:
    return CompletionEvents(outside.client("events"), "bus", "stack", on_unsent=lambda _: None, clock=outside.clock)


def _endings(outside: Outside, workflow: Workflow) -> Endings:
    return Endings(
        outside.client("dynamodb"),
        ROWS,
        Callers(outside.client("stepfunctions")),
        RequestEvents(_events(outside), ROWS, DEAD_LETTERS),
        FailureNotices(outside.client("sns"), "topic"),
        Retention(RETENTION, RETENTION),
        workflow.execution_arn,
        outside.clock,
    )


def _starter(outside: Outside) -> Starter:
    sqs = outside.client("sqs")
    return Starter(_tools(outside), EndingQueue(sqs, ENDINGS), RequestDeadLetterQueue(sqs, DEAD_LETTERS), Observer())


class Message(NamedTuple):
    """A message that an event source mapping passes to an invocation."""

    id: str
    body: str
    group: str
    sequence: int
    sent_at: float
    handle: str
    first_received: float


def receive(outside: Outside, messages: tuple[Message, ...]) -> str:
    """One invocation of the starter for messages of RequestQueue."""
    deliveries = [Delivery(each.id, each.body, each.group, str(each.sequence), each.sent_at) for each in messages]
    return _delete(outside, REQUESTS, messages, _starter(outside).receive(deliveries))


def answer(outside: Outside, messages: tuple[Message, ...]) -> str:
    """One invocation of the starter for messages of DispatchQueue."""
    again = _starter(outside).rung([(each.id, each.body) for each in messages])
    return _delete(outside, BELLS, messages, again)


def _delete(outside: Outside, queue: str, messages: tuple[Message, ...], left: list[str]) -> str:
    """Delete the messages that an invocation has handled, as the event source mapping does."""
    sqs = outside.client("sqs")
    for message in messages:
        if message.id not in left:
            try:
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message.handle)
            except (ClientError, BotoCoreError):
                return "not deleted"
    return "some come again" if left else "handled"


def _settlement(outside: Outside, workflow: Workflow) -> Settlement:
    dynamodb, children = outside.client("dynamodb"), Children(outside.client("stepfunctions"))
    outcomes, doorbell = Outcomes(dynamodb, ROWS), Doorbell(outside.client("sqs"), BELLS)
    rows = RequestRows(dynamodb, ROWS)
    return Settlement(workflow, children, rows, outcomes, _requeues(outside), doorbell, outside.clock)


def in_order(_: list[Any]) -> None:
    """Replaces the janitor's shuffle: its order makes no difference for one process."""


def run_janitor(outside: Outside, grace: int, check_gap: int) -> Any:
    """One scheduled janitor run; its counts."""
    dynamodb, workflow = outside.client("dynamodb"), Workflow(outside.client("stepfunctions"), WORKFLOW)
    janitor = Janitor(
        Slots(dynamodb, SLOTS),
        Processes(dynamodb, SLOTS),
        _tools(outside),
        RequestRows(dynamodb, ROWS),
        _endings(outside, workflow),
        workflow,
        GlueRuns(outside.client("glue")),
        Children(outside.client("stepfunctions")),
        _settlement(outside, workflow),
        grace,
        check_gap,
        outside.clock,
        outside.sleep,
        in_order,
    )
    return tuple(sorted(janitor.run().counts.items()))


def handle_ends(outside: Outside, messages: tuple[Message, ...], grace: int, check_gap: int) -> str:
    """One invocation of the function of endings, as its handler (functions/ending/app.py)."""
    dynamodb, sqs, stepfunctions = (outside.client(service) for service in ("dynamodb", "sqs", "stepfunctions"))
    workflow, slots, rows = Workflow(stepfunctions, WORKFLOW), Slots(dynamodb, SLOTS), RequestRows(dynamodb, ROWS)
    endings = _endings(outside, workflow)
    closed = ClosedExecutions(
        slots,
        rows,
        Doorbell(sqs, BELLS),
        workflow,
        _settlement(outside, workflow),
        DeadHolders(slots, GlueRuns(outside.client("glue")), Children(stepfunctions), check_gap, outside.clock),
        endings,
        outside.clock,
    )
    handled = EndMessages(closed, lambda: math.inf)
    left = []
    for message in messages:
        seconds = handled.handle(message.body, message.first_received, RunReport())
        if seconds is not None:
            left.append(message.id)
            sqs.change_message_visibility(QueueUrl=ENDINGS, ReceiptHandle=message.handle, VisibilityTimeout=seconds)
    return _delete(outside, ENDINGS, messages, left)


def cancel(outside: Outside, process: str, execution: str) -> str:
    """An operator cancels a request; its execution, or "" if it is not queued.

    It publishes and rings in any case: a first try whose answer was lost may have ended before.
    """
    rows, sqs = RequestTable(outside.client("dynamodb"), ROWS, SLOTS), outside.client("sqs")
    left = rows.leave(process, [Leaving(execution, "CANCELLED", "Cancelled", "by an operator")], outside.clock())
    EndingQueue(sqs, ENDINGS).publish(process, [execution])
    Doorbell(sqs, BELLS).ring(Bell(process))
    return execution if left else ""


def _requeues(outside: Outside) -> Requeues:
    return Requeues(outside.client("dynamodb"), ROWS, SLOTS, RETENTION)


def queue_again(outside: Outside, process: str, execution: str) -> str:
    """An operator redrives a failed request; the outcome."""
    outcome = _requeues(outside).redrive(process, [execution], outside.clock())[execution]
    Doorbell(outside.client("sqs"), BELLS).ring(Bell(process))
    return outcome.reason if isinstance(outcome, NotRequeued) else "queued"


def discard(outside: Outside, process: str, execution: str) -> str:
    """An operator discards a failed request; its execution, or "" if it was not discarded."""
    return execution if _requeues(outside).discard(process, execution) else ""


def release(outside: Outside, process: str, execution: str, is_reserved: bool) -> str:
    """An operator frees the slot of an execution, if it is still in this state; the outcome."""
    slots = Slots(outside.client("dynamodb"), SLOTS)
    seen = slots.read(process)
    holder = seen.holders.get(execution) if seen else None
    freed = holder is not None and (holder.state == "RESERVED") == is_reserved
    freed = freed and slots.free(process, execution, holder.raw)  # type: ignore[union-attr]
    Doorbell(outside.client("sqs"), BELLS).ring(Bell(process))
    return f"freed: {freed}"


def _operations(outside: Outside) -> Operations:
    return Operations(Processes(outside.client("dynamodb"), SLOTS), Doorbell(outside.client("sqs"), BELLS))


def change(outside: Outside, process: str, limit: int | tuple[int | None, str]) -> str:
    """An operator sets the limit, or that of a key, pauses (0) or resumes (-1)."""
    operations = _operations(outside)
    if isinstance(limit, tuple):
        operations.set_key_limit(process, *limit)
    elif limit > 0:
        operations.set_limit(process, limit)
    elif limit == 0:
        operations.pause(process)
    else:
        operations.resume(process)
    return "changed"


def replace(outside: Outside, process: str, limit: int, target: str, rate: Rate | None, key_limit: int | None) -> str:
    """An operator removes a paused process and adds it again; the outcome.

    `grants` begins at the time of the machine. That of the world's own item begins at 1, so no value comes again.
    """
    operations = _operations(outside)
    removed = operations.remove(process)
    return f"{removed}, {operations.processes.create(process, limit, target, rate=rate, key_limit=key_limit)}"


def hold(outside: Outside, number: int, block: int, wait: int) -> str:
    """A caller takes a lease, if a slot is free within `wait`, and releases it after its block; the outcome.

    A negative block runs for so many seconds without an extension. All callers try the same name first: a random one
    would hide that a late call meets the lease of another caller.
    """
    texts = chain([f"code-{number}", "same"], (f"{number}.{n}" for n in count()))
    leases = Leases(
        SLOTS,
        outside.client("dynamodb"),
        outside.client("sqs"),
        owner="x",
        request_table_name=ROWS,
        dispatch_queue_url=BELLS,
        clock=outside.clock,
        monotonic=outside.clock,
        sleep=outside.sleep,
        jitter=lambda *_: POLL_SECONDS,
        new_code=lambda: next(texts),
    )
    try:
        lease = leases._take("p", Length(None, LEASE_SECONDS), wait, None)
        try:
            outside.ask(RUNS_BLOCK)
            for _ in range(block // EXTEND_SECONDS):
                outside.sleep(EXTEND_SECONDS)
                lease.extend(LEASE_SECONDS)
                outside.ask(RUNS_BLOCK)
            if block < 0:
                outside.sleep(-block)
        finally:
            outside.ask(LEAVES_BLOCK)
            lease.release()
    except (SlotUnavailable, SlotLost, LookupError, MalformedProcess, ClientError, BotoCoreError) as error:
        return type(error).__name__
    return "released"


starter = Program("starter", receive)
dispatcher = Program("dispatcher", answer)
janitor_run = Program("janitor", run_janitor)
ending = Program("function of endings", handle_ends)
canceller = Program("cancelling operator", cancel)
requeuer = Program("redriving operator", queue_again)
discarder = Program("discarding operator", discard)
releaser = Program("freeing operator", release)
operator = Program("changing operator", change)
replacer = Program("replacing operator", replace)
caller = Program("caller of a lease", hold)
