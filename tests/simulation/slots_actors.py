"""The code of starter, janitor, status events, operators and leases as actors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import dynamodb as dynamodb_adapter
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots import lease_protocol
from slotkeeper.slots.callers import Callers
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.dispatch import Tools
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.endings import Endings
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.leases import Leases, Length, SlotLost, SlotUnavailable
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
from tests.simulation.workflow import BELLS, FAILED, ROWS, SLOTS

REQUESTS, DEAD_LETTERS, SETTLED = "requests.fifo", "dead-letters.fifo", "settled"
VISIBILITY = 180  # seconds, of both queues, as in template.yaml
AGE = AGE_SECONDS
LEASE_SECONDS, EXTEND_SECONDS = 60, 30
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


def _endings(outside: Outside) -> Endings:
    callers = Callers(outside.client("stepfunctions"))
    return Endings(outside.client("dynamodb"), ROWS, lambda: callers, RequestEvents(_events(outside), ROWS))


def _starter(outside: Outside) -> Starter:
    dead_letters = RequestDeadLetterQueue(outside.client("sqs"), DEAD_LETTERS)
    callers = Callers(outside.client("stepfunctions"))
    return Starter(_tools(outside), _endings(outside), dead_letters, lambda: callers, Observer())


class Message(NamedTuple):
    """A message that an event source mapping passes to an invocation."""

    id: str
    body: str
    group: str
    sequence: int
    sent_at: float
    handle: str


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


def _settlement(outside: Outside, workflow: Workflow, grace: int, check_gap: int) -> Settlement:
    settings = JanitorSettings(SLOTS, ROWS, SETTLED, WORKFLOW, BELLS, FAILED, grace, check_gap)
    dynamodb, sqs, stepfunctions = (outside.client(service) for service in ("dynamodb", "sqs", "stepfunctions"))
    settlement = Settlement.from_settings(settings, workflow, dynamodb, sqs, stepfunctions, _events(outside))
    settlement.clock = outside.clock
    return settlement


class Memory(NamedTuple):
    """The memory of a janitor's container as a value."""

    settled_by: float | None = None
    noted: float | None = None
    unsettled: tuple[tuple[str, Execution], ...] = ()
    settled: frozenset[str] = frozenset()


NEW = Memory()


def in_order(_: list[Any]) -> None:
    """Replaces the janitor's shuffle: its order makes no difference for one process."""


def run_janitor(outside: Outside, grace: int, check_gap: int, memory: Memory = NEW) -> tuple[Memory, Any]:
    """One scheduled janitor run: its container's memory afterwards, and its counts."""
    dynamodb, workflow = outside.client("dynamodb"), Workflow(outside.client("stepfunctions"), WORKFLOW)
    settlement = _settlement(outside, workflow, grace, check_gap)
    janitor = Janitor(
        Slots(dynamodb, SLOTS),
        Processes(dynamodb, SLOTS),
        _tools(outside),
        RequestRows(dynamodb, ROWS),
        _endings(outside),
        workflow,
        GlueRuns(outside.client("glue")),
        Children(outside.client("stepfunctions")),
        settlement,
        grace,
        check_gap,
        outside.clock,
        outside.sleep,
        in_order,
    )
    known = settlement.memory
    if memory.settled_by is not None:
        known.settled_by, known.noted = memory.settled_by, memory.noted or 0
    known.unsettled.update(memory.unsettled)
    settlement.settled._known.update(memory.settled)
    counts = tuple(sorted(janitor.run().counts.items()))
    unsettled = tuple(sorted(known.unsettled.items()))
    return Memory(known.settled_by, known.noted, unsettled, frozenset(settlement.settled._known)), counts


def handle_event(outside: Outside, execution: str, redrives: int, grace: int, check_gap: int) -> int | None:
    """One receive of a status event: the seconds until the next, if any. An exception also causes another receive."""
    slots, workflow = Slots(outside.client("dynamodb"), SLOTS), Workflow(outside.client("stepfunctions"), WORKFLOW)
    glue, children = GlueRuns(outside.client("glue")), Children(outside.client("stepfunctions"))
    closed = ClosedExecutions(
        slots,
        Doorbell(outside.client("sqs"), BELLS),
        workflow,
        _settlement(outside, workflow, grace, check_gap),
        DeadHolders(slots, glue, children, check_gap, outside.clock),
        outside.clock,
    )
    return closed.handle(execution, redrives, RunReport())


def cancel(outside: Outside, process: str, execution: str) -> str:
    """An operator cancels a request; its execution, or "" if it is not queued.

    It rings in any case: a first try whose answer was lost may have ended before its ring.
    """
    rows = RequestTable(outside.client("dynamodb"), ROWS, SLOTS)
    left = rows.leave(process, [Leaving(execution, "CANCELLED", "Cancelled", "by an operator")], outside.clock())
    Doorbell(outside.client("sqs"), BELLS).ring(Bell(process, ended=(execution,)))
    return execution if left else ""


def queue_again(outside: Outside, process: str, execution: str) -> str:
    """An operator queues a failed request again; the outcome."""
    requeues = Requeues(outside.client("dynamodb"), ROWS, SLOTS)
    outcome = requeues.redrive(process, execution, outside.clock())
    Doorbell(outside.client("sqs"), BELLS).ring(Bell(process))
    return outcome.reason if isinstance(outcome, NotRequeued) else "queued"


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


def change(outside: Outside, process: str, limit: int) -> str:
    """An operator sets the limit, pauses (0) or resumes (-1)."""
    operations = _operations(outside)
    if limit > 0:
        operations.set_limit(process, limit)
    elif limit == 0:
        operations.pause(process)
    else:
        operations.resume(process)
    return "changed"


def replace(outside: Outside, process: str, limit: int, target: str, rate: Rate | None) -> str:
    """An operator removes a paused process and adds it again; the outcome.

    `grants` begins at the time of the machine. That of the world's own item begins at 1, so no value comes again.
    """
    operations = _operations(outside)
    removed = operations.remove(process)
    return f"{removed}, {operations.processes.create(process, limit, target, rate=rate)}"


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
        jitter=lambda _, high: high,
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


# None of these keeps its whole state in variables: it asks while it builds a tuple or a list.
starter = Program("starter", receive)
dispatcher = Program("dispatcher", answer)
janitor_run = Program("janitor", run_janitor)
closed_execution = Program("status event", handle_event)
canceller = Program("cancelling operator", cancel)
requeuer = Program("operator who queues again", queue_again)
releaser = Program("freeing operator", release)
operator = Program("changing operator", change)
replacer = Program("replacing operator", replace)
caller = Program("caller of a lease", hold)
