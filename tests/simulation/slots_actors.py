"""The code of starter, janitor and operator commands as actors."""

from __future__ import annotations

from itertools import chain, count
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.observability import logger
from slotkeeper.slots import lease_protocol
from slotkeeper.slots.admission import Deferred, Starter, Waiting
from slotkeeper.slots.callers import CallerAnswers, Callers
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.leases import Leases, Length, SlotLost, SlotUnavailable
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import FailedRequestQueue, RequestQueue, wake_next
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import Delivery
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement, SettlementTable
from slotkeeper.slots.skipped_requests import SkippedRequests
from slotkeeper.slots.work import Children, GlueRuns
from tests.simulation.aws.stepfunctions import WORKFLOW
from tests.simulation.transcript import Outside, Program, Question
from tests.simulation.workflow import FAILED, REQUESTS, SLOTS

SETTLED, DEAD_LETTERS = "settled", "dead-letters.fifo"
VISIBILITY, RETENTION, MOST_RECEIVES = 180, 14 * 86400, 1000  # as in template.yaml
LEASE_SECONDS, EXTEND_SECONDS = 60, 30
RUNS_BLOCK, LEAVES_BLOCK = Question("actor", "runs block", None), Question("actor", "leaves block", None)

lease_protocol.logger.setLevel("CRITICAL")
logger.setLevel("CRITICAL")  # formatting the log would take longer than the rest of the simulation


def start(
    outside: Outside,
    message_id: str,
    body: str,
    group: str,
    handle: str,
    sequence: int,
    receives: int,
    sent_at: float,
    large: tuple[str, ...] = (),
) -> str:
    """Run one invocation of the starter, and delete the message as the event source mapping does; the outcome."""
    sqs = outside.client("sqs")
    starter = Starter(
        Slots(outside.client("dynamodb"), SLOTS, large=large),
        RequestQueue(sqs, REQUESTS, DEAD_LETTERS),
        Workflow(outside.client("stepfunctions"), WORKFLOW),
        SkippedRequests(outside.client("dynamodb"), SETTLED),
        VISIBILITY,
        RETENTION,
        MOST_RECEIVES,
        answer=Callers(outside.client("stepfunctions")).fail,
        sleep=outside.sleep,
        clock=outside.clock,
    )
    delivery = Delivery(message_id, body, group, handle, str(sequence), receives, sent_at)
    now = outside.clock()
    try:
        try:
            admission = starter.admit(delivery, now)
        except Exception as error:
            admission = starter.defer(delivery, now, error)
        if not isinstance(admission, Waiting | Deferred):
            sqs.delete_message(QueueUrl=REQUESTS, ReceiptHandle=handle)
    except Exception as error:
        return f"left on the queue: {type(error).__name__}"
    return type(admission).__name__


def _settlement(outside: Outside, grace: int, check_gap: int) -> Settlement:
    dynamodb, stepfunctions = outside.client("dynamodb"), outside.client("stepfunctions")
    workflow = Workflow(stepfunctions, WORKFLOW)
    return Settlement(
        workflow,
        FailedRequestQueue(outside.client("sqs"), FAILED),
        SettlementTable(dynamodb, SETTLED, claim=check_gap),  # 0 in a timeless world, where a claim would never end
        grace,
        outside.clock,
        answers=CallerAnswers(Callers(stepfunctions), workflow, Children(stepfunctions)),
    )


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
    dynamodb, settlement = outside.client("dynamodb"), _settlement(outside, grace, check_gap)
    janitor = Janitor(
        Slots(dynamodb, SLOTS),
        Processes(dynamodb, SLOTS),
        RequestQueue(outside.client("sqs"), REQUESTS),
        settlement.workflow,
        GlueRuns(outside.client("glue")),
        Children(outside.client("stepfunctions")),
        settlement,
        grace,
        check_gap,
        outside.clock,
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
    dynamodb, settlement = outside.client("dynamodb"), _settlement(outside, grace, check_gap)
    slots = Slots(dynamodb, SLOTS)
    closed = ClosedExecutions(
        slots,
        RequestQueue(outside.client("sqs"), REQUESTS),
        settlement.workflow,
        settlement,
        DeadHolders(
            slots,
            GlueRuns(outside.client("glue")),
            Children(outside.client("stepfunctions")),
            check_gap,
            outside.clock,
        ),
        outside.clock,
    )
    return closed.handle(execution, redrives, RunReport())


def cancel(outside: Outside, execution: str) -> str:
    """An operator cancels a request; the outcome."""
    dynamodb = outside.client("dynamodb")
    queue = RequestQueue(outside.client("sqs"), REQUESTS)
    operations = Operations(Processes(dynamodb, SLOTS), Slots(dynamodb, SLOTS), queue, outside.clock)
    try:
        return operations.cancel_request(execution.rpartition("-")[0], execution, outside.clock(), "operator")
    except Exception as error:
        return f"failed: {type(error).__name__}"


def release(outside: Outside, process: str, execution: str) -> str:
    """An operator releases the slot of an execution; the outcome."""
    slots = Slots(outside.client("dynamodb"), SLOTS)
    try:
        seen = slots.read(process)
        if seen is None or execution not in seen.holders:
            return "no holder"
        slots.release(process, execution, seen.holders[execution].raw)
        return f"released, woken: {wake_next(slots, RequestQueue(outside.client('sqs'), REQUESTS), process)}"
    except Exception as error:
        return f"failed: {type(error).__name__}"


def change(outside: Outside, process: str, limit: int) -> str:
    """An operator sets the limit, pauses (0) or resumes (-1); the outcome."""
    dynamodb = outside.client("dynamodb")
    queue = RequestQueue(outside.client("sqs"), REQUESTS)
    operations = Operations(Processes(dynamodb, SLOTS), Slots(dynamodb, SLOTS), queue, outside.clock)
    try:
        if limit > 0:
            return f"woken: {operations.set_limit(process, limit)}"
        return str(operations.pause(process) if limit == 0 else f"woken: {operations.resume(process)}")
    except Exception as error:
        return f"failed: {type(error).__name__}"


def replace(outside: Outside, process: str, limit: int, job: str, rate: Rate | None) -> str:
    """An operator removes a paused process and adds it again; the outcome."""
    dynamodb = outside.client("dynamodb")
    processes = Processes(dynamodb, SLOTS)
    operations = Operations(processes, Slots(dynamodb, SLOTS), RequestQueue(outside.client("sqs"), REQUESTS))
    try:
        return f"{operations.remove(process)}, {processes.create(process, limit, job, rate=rate, queue_url=REQUESTS)}"
    except Exception as error:
        return f"failed: {type(error).__name__}"


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
    except (SlotUnavailable, SlotLost, LookupError, ClientError, BotoCoreError) as error:
        return type(error).__name__
    return "released"


# The starter does not use the item that it saw at a refusal after the next question.
starter = Program("starter", start, stack_is_state=True, unread=frozenset({"seen", "reservation"}))
janitor_run = Program("janitor", run_janitor, stack_is_state=True, written_only=(RunReport,))
closed_execution = Program("status event", handle_event, stack_is_state=True, written_only=(RunReport,))
canceller = Program("operator", cancel, stack_is_state=True)
releaser = Program("releasing operator", release, stack_is_state=True)
operator = Program("changing operator", change, stack_is_state=True)
replacer = Program("replacing operator", replace, stack_is_state=True)
caller = Program("caller of a lease", hold)
