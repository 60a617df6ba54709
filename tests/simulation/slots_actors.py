"""The starter's and the janitor's own code as actors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from slotkeeper.admission import HeldBack, Starter, Waiting
from slotkeeper.glue_runs import GlueRuns
from slotkeeper.observability import logger
from slotkeeper.operations import Operations
from slotkeeper.processes import Processes
from slotkeeper.reclaim import Findings, Janitor
from slotkeeper.request_queue import FailedRequestQueue, RequestQueue
from slotkeeper.requests import Delivery
from slotkeeper.settled import Settled
from slotkeeper.slots import Slots
from slotkeeper.workflow import Workflow
from tests.simulation.transcript import Outside, Program
from tests.simulation.workflow import FAILED, REQUESTS, SLOTS

SETTLED, DEAD_LETTERS, MACHINE = "settled", "dead-letters.fifo", "arn:stateMachine:gated"
VISIBILITY, RETENTION, MOST_RECEIVES = 180, 14 * 86400, 1000  # as in template.yaml

logger.setLevel("CRITICAL")  # the logger's own format takes longer than everything else here together


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
    """One invocation of the starter, and the event source mapping's end of it: what it made of the message."""
    sqs = outside.client("sqs")
    starter = Starter(
        Slots(outside.client("dynamodb"), SLOTS, large=large),
        RequestQueue(sqs, REQUESTS, DEAD_LETTERS),
        Workflow(outside.client("stepfunctions"), MACHINE),
        VISIBILITY,
        RETENTION,
        MOST_RECEIVES,
    )
    delivery = Delivery(message_id, body, group, handle, str(sequence), receives, sent_at)
    now = outside.clock()
    try:
        try:
            admission = starter.admit(delivery, now)
        except Exception as error:
            admission = starter.defer(delivery, now, error)
        if not isinstance(admission, Waiting | HeldBack):
            sqs.delete_message(QueueUrl=REQUESTS, ReceiptHandle=handle)
    except Exception as error:
        return f"left on the queue: {type(error).__name__}"
    return type(admission).__name__


def _janitor(outside: Outside, grace: int, look_gap: int) -> Janitor:
    dynamodb, sqs = outside.client("dynamodb"), outside.client("sqs")
    return Janitor(
        Slots(dynamodb, SLOTS),
        Processes(dynamodb, SLOTS),
        RequestQueue(sqs, REQUESTS),
        Workflow(outside.client("stepfunctions"), MACHINE),
        GlueRuns(outside.client("glue")),
        FailedRequestQueue(sqs, FAILED),
        Settled(dynamodb, SETTLED),
        grace,
        look_gap,
        outside.clock,
    )


class Memory(NamedTuple):
    """What a container of the janitor knows from its rounds before, as a value."""

    spent: tuple[tuple[str, tuple[str, float]], ...] = ()
    settled_by: float = -math.inf
    settled: frozenset[str] = frozenset()


NEW = Memory()


def round_(outside: Outside, grace: int, look_gap: int, memory: Memory = NEW) -> tuple[Memory, Any]:
    """One scheduled round of the janitor: what its container remembers after it, and what it counted."""
    janitor = _janitor(outside, grace, look_gap)
    known = janitor._memory
    known.spent.update(memory.spent)
    known.settled_by = memory.settled_by
    janitor.settled._known.update(memory.settled)
    counts = tuple(sorted(janitor.round().counts.items()))
    return Memory(tuple(sorted(known.spent.items())), known.settled_by, frozenset(janitor.settled._known)), counts


def visit(outside: Outside, execution: str, grace: int, look_gap: int) -> tuple[tuple[str, int], ...]:
    """The janitor's answer to one status event. What it raises, Lambda tries again; the rounds do too."""
    return tuple(sorted(_janitor(outside, grace, look_gap).visit(execution).counts.items()))


def cancel(outside: Outside, execution: str) -> str:
    """An operator cancels a queued request: what came of it."""
    dynamodb = outside.client("dynamodb")
    queue = RequestQueue(outside.client("sqs"), REQUESTS)
    operations = Operations(Processes(dynamodb, SLOTS), Slots(dynamodb, SLOTS), queue)
    try:
        return operations.cancel_request(execution.rpartition("-")[0], execution, outside.clock(), "operator")
    except Exception as error:
        return f"cannot tell: {type(error).__name__}"


def replace(outside: Outside, process: str, limit: int, job: str) -> str:
    """An operator removes a paused process and adds it again: what came of it."""
    dynamodb = outside.client("dynamodb")
    processes = Processes(dynamodb, SLOTS)
    operations = Operations(processes, Slots(dynamodb, SLOTS), RequestQueue(outside.client("sqs"), REQUESTS))
    try:
        return f"{operations.remove(process)}, {processes.create(process, limit, job)}"
    except Exception as error:
        return f"cannot tell: {type(error).__name__}"


starter = Program("starter", start, stack_tells=True, stands_still=True)
janitor_round = Program("janitor", round_, stack_tells=True, stands_still=True, written_only=(Findings,))
janitor_visit = Program("janitor's visit", visit, stack_tells=True, stands_still=True, written_only=(Findings,))
canceller = Program("operator", cancel, stack_tells=True, stands_still=True)
replacer = Program("operator who replaces", replace, stack_tells=True, stands_still=True)
