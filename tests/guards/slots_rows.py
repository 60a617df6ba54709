"""Rows of the starter, its dispatches and doorbells, of leases, rates and processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from slotkeeper.slots import dispatch, lease_protocol, plan, process, rate
from slotkeeper.slots import request as requests
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dispatch import DispatchFailed, _Dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.lease_protocol import LeaseSteps
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.queued import QueuePart
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.starter import Starter
from slotkeeper.slots.starts import Starts
from tests.guards.edits import code, file, template
from tests.guards.rows import Row, World
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.small_worlds import SMALL
from tests.simulation.world_runs import set_to
from tests.simulation.worlds import World as Simulated

Patch = pytest.MonkeyPatch
SLOTS = "tests/unit/slots"
A, B = Sent("a"), Sent("b")


def of(*sent: Sent, **given: Any) -> Callable[[], Simulated]:
    """A world of slots. See Plan."""
    return lambda: SlotsWorld(Plan(sent, **given))


# Order of calls -----------------------------------------------------------------------------------------------------


class _Read:
    """RequestTable with a queue that was read before."""

    def __init__(self, table: RequestTable, name: str) -> None:
        self._table = table
        self._part = table.queue(name, 100)

    def queue(self, *_: Any) -> QueuePart:
        return self._part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


def reads_the_queue_first(patch: Patch) -> None:
    run = _Dispatch.run

    def hasty(self: _Dispatch) -> Any:
        self.tools = replace(self.tools, requests=_Read(self.tools.requests, self.bell.process))  # type: ignore[arg-type]
        return run(self)

    patch.setattr(_Dispatch, "run", hasty)


def marks_before_the_start(patch: Patch) -> None:
    read = RequestTable.bodies

    def hasty(self: RequestTable, name: str, executions: Any) -> Any:
        found = read(self, name, executions)
        for execution in found:
            self.mark_started(name, execution, "", 1.0)
        return found

    patch.setattr(RequestTable, "bodies", hasty)


def notes_a_timer_first(self: _Dispatch, seen: Process, at: float | None, now: float) -> None:
    if at is not None and not now < seen.ring_at <= at:
        self.tools.grants.note_ring(seen.name, at)
        self.tools.doorbell.ring(Bell(seen.name, at=at), at - now)


def only_timers_ring(patch: Patch) -> None:
    ring = Doorbell.ring
    patch.setattr(
        Doorbell, "ring", lambda self, bell, delay=0: ring(self, bell, delay) if bell.at is not None else None
    )


def drops_its_ring(self: Starter, name: str, _leavers: bool) -> bool:
    self._dispatch(self.tools, Bell(name))
    return True


def has_leases_alone(self: _Dispatch, seen: Process, _: float) -> bool:
    return seen.room > 0 or any(holder.is_lease for holder in seen.holders.values())


QUEUE = [
    Row(
        "s3-the-queue-is-read-before-the-item",
        "A request whose slot was released between the two reads is started again.",
        reads_the_queue_first,
        World(of(A, B), 0, "S3"),
    ),
    Row(
        "s5-marked-before-the-start",
        "A starter dies after its mark, and the request never starts.",
        marks_before_the_start,
        World(of(A, aim="invocations"), 1, "S4 S5 S6"),
    ),
    Row(
        "s9b-the-deadline-is-not-checked",
        "A request starts after its start_before.",
        code(plan._Planning.sort, "request.start_before is not None and self.now >= request.start_before", "False"),
        f"{SLOTS}/test_plan.py::test_s9b_who_leaves_the_queue_without_a_start",
    ),
    Row(
        "f19-requests-of-an-unknown-process-wait",
        "A process that does not exist counts as full, and its requests wait forever.",
        code(_Dispatch._reject, "[each.execution for each in page if each.execution not in held]", "[]"),
        f"{SLOTS}/test_dispatch.py::test_f19_requests_of_an_unknown_process_are_rejected_in_rounds",
    ),
    Row(
        "f21-a-few-receives-dead-letter-a-message",
        "A message whose row could not be written a few times is dead-lettered by SQS.",
        template("Resources.RequestQueue.Properties.RedrivePolicy.maxReceiveCount", 1000, 3),
        "tests/template/test_template.py::test_f21_the_receive_count_is_a_backstop_only",
    ),
    Row(
        "f24-a-new-name-each-time",
        "Each delivery starts an execution under a name of its own (IDP #904: 3.36 executions a message).",
        code(requests.execution_name, "(request_id, str(attempt))", f"(request_id, str(attempt), '{uuid4()}')"),
        f"{SLOTS}/test_requests.py::test_the_name_of_an_execution_is_the_documented_hash",
        also=("F1",),
    ),
    Row(
        "f26-the-name-from-the-message-id",
        "The execution's name comes from the SQS message id. A redriven message has a new one, and runs a second time.",
        code(requests.parse_request, 'fields.get("request_id", delivery.message_id)', "delivery.message_id"),
        f"{SLOTS}/test_requests.py::test_the_input_of_a_request_with_an_id_does_not_depend_on_the_delivery",
    ),
]

STARTS = [
    Row(
        "f01-released-on-an-uncertain-answer",
        "A StartExecution without an answer did start it, and its slot is released (pipelines-as-code #2948).",
        code(Starts.start, "Unsure(str(error))", "NotStarted(str(error))"),
        World(of(A, aim="dispatches"), 1, "S4"),
    ),
    Row(
        "f15-an-old-reservation-stays",
        "A starter dies before its start, and its reservation is started by no other invocation.",
        set_to(dispatch, "orphans", lambda *_: ()),
        World(of(A, aim="invocations"), 1, "S4 S6"),
    ),
    Row(
        "f15-a-full-process-is-left",
        "A dispatch of a full process ends although a reservation is old.",
        set_to(_Dispatch, "_may_change", has_leases_alone),
        World(of(A, aim="invocations"), 1, "S4 S6"),
    ),
    Row(
        "f17-refuse-already-mine",
        "A grant whose first answer was lost is refused when the SDK repeats it, and nothing starts its requests.",
        code(Grants.grant, "write.retried", "False"),
        f"{SLOTS}/test_grants.py::test_f17_a_repeated_grant_whose_first_answer_was_lost_is_found_as_its_own",
    ),
    Row(
        "s6-a-failure-rings-too-early",
        "A dispatch that has left reservations is repeated before they are old, and nothing starts them.",
        code(DispatchFailed.__init__, "age + 1 + CLOCK_SKEW_SECONDS if unsettled else 0", "0"),
        World(of(A, aim="dispatches"), 1, "S4 S6"),
    ),
    Row(
        "s6-a-failure-does-not-ring",
        "A dispatch fails, and its message is deleted without a ring.",
        set_to(Starter, "_dispatch_received", drops_its_ring),
        World(of(A, aim="dispatches"), 1, "S4 S6"),
    ),
    Row(
        "s6-a-refused-request-ends-the-dispatch",
        "A dispatch ends after it has ended a request, and the next one waits next to the free slot.",
        code(
            _Dispatch._round,
            "planned.unread or settled.removed or len(planned.starts) == most or len(again) == MAX_STARTS",
            "planned.unread or len(planned.starts) == most or len(again) == MAX_STARTS",
        ),
        World(of(A, B, rejects=("a",), batch=True), 0, "S6"),
    ),
    Row(
        "f27-lambda-stops-the-starter",
        "Lambda takes the starter's chain of rings for a loop, and drops the seventeenth invocation.",
        template("Resources.StarterFunction.Properties.RecursiveLoop", "Allow", "Terminate"),
        "tests/template/test_worker_template.py::test_f27_lambda_stops_the_loops_of_all_functions_but_two",
    ),
]

BELLS = [
    Row(
        "s6-a-cancellation-rings-no-dispatch",
        "A heavy request leaves the queue, and those behind it wait for the janitor.",
        only_timers_ring,
        World(of(Sent("a", weight=2), B, limit=2, leased=600, cancels=("a",)), 0, "S6"),
    ),
    Row(
        "s6-a-raised-limit-rings-no-dispatch",
        "An operator raises the limit, and the requests wait for the janitor.",
        set_to(Operations, "set_limit", lambda self, *given: self.processes.set_limit(*given)),
        World(of(Sent("a", weight=2), limits=(2,)), 0, "S6"),
    ),
    Row(
        "s6-a-freed-slot-rings-no-dispatch",
        "The slot of a dead holder is freed, and the requests wait for the janitor.",
        code(ClosedExecutions.handle, "self.doorbell.ring(Bell(process_name))"),
        World(of(A, B, aim="ends"), 1, "S6"),
    ),
    Row(
        "s6-a-lease-rings-no-dispatch",
        "A lease ends, and the requests wait for the janitor.",
        set_to(LeaseSteps, "_ring", lambda *_: None),
        World(of(A, leases=(0,)), 0, "S6"),
    ),
    Row(
        "s6-no-timer",
        "A request waits behind a lease that expires, and nothing looks again then.",
        set_to(Process, "next_expiry", None),
        World(of(A, leased=30), 0, "S4 S6"),
    ),
    Row(
        "s6-a-timer-is-noted-before-it-is-sent",
        "The dispatch dies between the two, and no other one sends it.",
        set_to(_Dispatch, "_look_again", notes_a_timer_first),
        World(of(A, leased=30, aim="dispatches"), 1, "S4 S6"),
    ),
]

LEASES = [
    Row(
        "lease-no-clock-skew",
        "A lease is removed at its end, by a caller whose clock is ahead, while its holder still works.",
        code(Holder.removable_from, "self.until + CLOCK_SKEW_SECONDS", "self.until"),
        World(of(leases=(0, 4), blocks=(-90, 0), lease_wait=200), 0, "S1c"),
    ),
    Row(
        "lease-a-lost-lease-is-not-reported",
        "A block that overran its lease succeeds, although more blocks than the limit may have run.",
        code(
            LeaseSteps.release,
            "write.held or (write.retried and not overran and _code_in(write.item, name) is None)",
            "True",
        ),
        f"{SLOTS}/test_leases.py::test_a_lease_that_another_caller_removed_cannot_be_extended_and_its_exit_raises",
    ),
    Row(
        "lease-a-status-event-frees-a-lease",
        "An execution that was started manually under a lease's name ends, and its event frees the lease's slot.",
        code(ClosedExecutions.handle, "process and holder and not holder.is_lease", "process and holder"),
        f"{SLOTS}/test_closed_executions.py::test_a_status_event_of_an_execution_with_a_leases_name_frees_no_slot",
    ),
    Row(
        "s8-a-lease-overtakes-a-request",
        "A lease takes a slot although a request waits for it.",
        set_to(lease_protocol, "NO_TARGET", "job"),
        World(of(A, B, leases=(0,)), 0, "S8 S6"),
    ),
    Row(
        "rate-rounded-down",
        "The interval is rounded down, so that more starts than the rate allows follow each other.",
        code(rate.Rate.interval, "-(-1000 * self.seconds // self.count)", "1000 * self.seconds // self.count"),
        f"{SLOTS}/test_rates.py::test_an_interval_is_rounded_up[30/second-34]",
    ),
]

REGISTRAR = "functions/process_registrar/app.py"
PROCESSES = [
    Row(
        "f07-a-malformed-limit-is-a-limit",
        "A limit that is no whole number is taken for 0, and the process's requests wait forever without an alarm.",
        code(process._parse, 'attributes.whole("slot_limit")', 'int(attributes.raw.get("slot_limit", {}).get("N", 0))'),
        f"{SLOTS}/test_malformed_items.py::test_a_malformed_item_is_reported_with_its_attribute",
    ),
    Row(
        "f10-a-deployment-overwrites-the-limit",
        "A deployment sets the limit that an operator has changed.",
        file(
            REGISTRAR,
            "created = _processes.create(name, slot_limit, target)",
            "created = _processes.create(name, slot_limit, target)\n_processes.set_limit(name, slot_limit)",
        ),
        "tests/unit/test_functions.py::test_f10_a_later_parameter_does_not_overwrite_what_operators_set",
    ),
    Row(
        "f12-a-job-that-retries-is-accepted",
        "Glue's own MaxRetries starts another run, for which no slot was taken.",
        file(REGISTRAR, 'job.get("MaxRetries", 0)', "False"),
        "tests/unit/test_functions.py::test_f12_a_job_that_retries_by_itself_is_refused",
    ),
]


def held_with_leases(self: Process) -> dict[str, int]:
    held: dict[str, int] = {}
    for each in self.holders.values():
        held[each.key] = held.get(each.key, 0) + each.weight
    return held


def keyed(name: str, broken: str) -> World:
    """A small world of requests with keys, without a fault."""
    return World(SMALL[name].make, 0, broken)


KEYS = [
    Row(
        "s12-a-plan-ignores-its-own-starts",
        "Two requests of a key start in one grant, although only one may.",
        code(plan._Free.take, "self.held_by_key[key] += weight"),
        keyed("key limit, 2 requests in a batch, one invocation dies", "S12"),
    ),
    Row(
        "s6-leases-count-as-requests-without-a-key",
        "A request without a key waits for the end of a lease, next to a free slot.",
        set_to(Process, "held_by_key", property(held_with_leases)),
        keyed("key limit, a lease and a request without a key", "S6"),
    ),
    Row(
        "s5-no-turns-in-a-grant",
        "The first key has all starts of a grant.",
        code(plan._Planning._take_turns, "turns.append(turn)", "turns.appendleft(turn)"),
        World(of(*(Sent(name, key=key) for name, key in ("ak", "bk", "cm")), limit=3, batch=True), 0, "S5"),
    ),
    Row(
        "s5-one-turn-for-all-priorities",
        "A start of high priority takes the turn of its key among others, which wait behind a key that had its turn.",
        code(
            plan._Planning._take, "self.last[rank] = request.key", "self.last.update(dict.fromkeys('012', request.key))"
        ),
        keyed("keys, 2 priorities", "S5"),
    ),
    Row(
        "key-an-adopted-holder-does-not-count",
        "A child was redriven, and its key gets as many slots again.",
        code(Process.held_by_key, "not holder.is_lease", "not holder.is_lease and not holder.redriven"),
        f"{SLOTS}/test_children.py::test_an_adopted_child_has_the_weight_and_the_key_of_its_request",
    ),
    Row(
        "key-rings-of-all-places-are-one-dispatch",
        "A ring that continues a dispatch narrows one that does not, and a request waits for the janitor.",
        code(Starter.rung, "bell.passed or ()", "()"),
        f"{SLOTS}/test_starter.py::test_a_ring_that_continues_a_dispatch_does_not_narrow_another_one",
    ),
]

ROWS = QUEUE + STARTS + BELLS + LEASES + PROCESSES + KEYS
