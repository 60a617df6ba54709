"""Without one of its guards, a small world of slots breaks a guarantee: the controls of test_small_worlds.py."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots import dispatch, grants, lease_protocol, protocol, request_table
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dispatch import DispatchFailed, _Dispatch
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants, Removed
from slotkeeper.slots.plan import Plan as Planned
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.request_table import QueuedBody, RequestTable
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.starter import Starter
from slotkeeper.slots.starts import NotStarted, ReservationStarter, Reserved, Settled, Starts, Unsure
from slotkeeper.slots.work import JobRunSearch
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import Control, all_of, breaks, replaced, set_to, state_with
from tests.simulation.worlds import World

Patch = pytest.MonkeyPatch
A, B, C = Sent("a"), Sent("b"), Sent("c")
LOW, HIGH = Sent("b", "low"), Sent("c", "high")
SKIPS = Sent("a", weight=2, skips=True)


def _world(*requests: Sent, **plan: Any) -> Callable[[], World]:
    return lambda: SlotsWorld(Plan(requests, **plan))


KEPT = "grants = if_not_exists(grants, :one)"
CHANGED = "grants = grants + :one"

# Rows: accept, mark, outcome ---------------------------------------------------------------------------------------


def overwrite(self: RequestTable, row: Item) -> None:
    self._table.put(row, "attribute_exists(process_name) OR attribute_not_exists(process_name)")


def mark_always(self: RequestTable, process: str, execution: str, granted: str, now: float) -> bool:
    values = {":started": {"S": "STARTED"}, ":now": {"N": "1"}, ":granted": {"S": granted}}
    there = "attribute_exists(execution)"
    return self._table.update((process, execution), request_table.MARK_UPDATE, there, values, {"#state": "state"}).held


def marked_before_the_start(patch: Patch) -> None:
    read = RequestTable.bodies

    def hasty(self: RequestTable, process: str, names: Sequence[str]) -> dict[str, QueuedBody | None]:
        found = read(self, process, names)
        for name in found:
            self.mark_started(process, name, "", 1.0)
        return found

    patch.setattr(RequestTable, "bodies", hasty)


def _without_place(state: dict[str, Any]) -> None:
    update = state["Arguments"]["UpdateExpression"]
    assert "REMOVE place, " in update
    state["Arguments"]["UpdateExpression"] = update.replace("REMOVE place, ", "REMOVE ")


ROWS = {
    "accept: overwrites": Control(set_to(RequestTable, "add", overwrite), _world(A), 1, "S3"),
    "mark: although it has ended": Control(set_to(RequestTable, "mark_started", mark_always), _world(A), 0, "S3"),
    "mark: before the start": Control(marked_before_the_start, _world(A, aim="invocations"), 1, "S4 S5 S6"),
    "outcome: keeps the place": Control(state_with("RecordOutcome", _without_place), _world(A), 0, "S3"),
    "outcome: after the release": Control(
        state_with("RunGlueJob", lambda state: state.update(Next="ReleaseSlot")), _world(A), 0, "S7"
    ),
    "handler: no outcome": Control(
        set_to(Settlement, "_record", lambda *_: None), _world(A, aim="ends"), 1, "S3 S4 S7"
    ),
}

# Grants and exits --------------------------------------------------------------------------------------------------


class _Read:
    """RequestTable with a queue that was read before."""

    def __init__(self, requests: RequestTable, process: str) -> None:
        self._requests = requests
        self._pages = list(requests.queue(process, 100, 100))

    def queue(self, *_: Any) -> Iterator[Any]:
        return iter(self._pages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._requests, name)


def the_queue_is_read_before_the_item(patch: Patch) -> None:
    run = _Dispatch.run

    def hasty(self: _Dispatch) -> Any:
        self.tools = replace(self.tools, requests=_Read(self.tools.requests, self.bell.process))  # type: ignore[arg-type]
        return run(self)

    patch.setattr(_Dispatch, "run", hasty)


SEEN = replaced(grants, "GRANT_CONDITION", "grants = :seen", "(grants = :seen OR grants <> :seen)")
GRANTS = {
    "grant: of an old plan": Control(SEEN, _world(A, cancels=("a",)), 0, "S3"),
    "grant: leaves grants as it is": Control(replaced(grants, "GRANT_UPDATE", CHANGED, KEPT), _world(A), 0, "S5"),
    "grant: under an old limit": Control(
        replaced(grants, "GRANT_CONDITION", "slot_limit = :limit", "(slot_limit = :limit OR slot_limit <> :limit)"),
        _world(A, B, limit=2, limits=(1,), batch=True),
        0,
        "S1",
    ),
    "grant: next to a lease, without room": Control(
        all_of(
            replaced(lease_protocol, "TAKE_UPDATE", CHANGED, KEPT),
            replaced(
                grants,
                "GRANT_CONDITION",
                "slots_in_use <= :counted AND size(holders) <= :room",
                "(slots_in_use <= :counted OR size(holders) <= :room OR slot_limit = :limit)",
            ),
        ),
        _world(A, leases=(0,), blocks=(30,)),
        0,
        "S1 S5",
    ),
    "dispatch: reads the queue before the item": Control(the_queue_is_read_before_the_item, _world(A, B), 0, "S3"),
    "leave: leaves grants as it is": Control(
        replaced(request_table, "LEAVE_PROCESS_UPDATE", CHANGED, KEPT), _world(A, cancels=("a",)), 0, "S3"
    ),
    "leave: with a holder": Control(
        replaced(request_table, "LEAVE_CONDITION", " AND {absent}", " OR ({absent})"),
        _world(A, cancels=("a",)),
        0,
        "S3",
    ),
    "handler: leaves grants as it is": Control(
        all_of(replaced(protocol, "FREE_UPDATE", CHANGED, KEPT), set_to(protocol, "NOTE_END_UPDATE", f"SET {KEPT}")),
        _world(A, frees=1, aim="ends"),
        1,
        "S3",
    ),
}

# Starts and reservations -------------------------------------------------------------------------------------------


def as_if_certain(self: _Dispatch) -> Any:
    return self.report


def full_or_not(self: _Dispatch, seen: Process, now: float) -> bool:
    return seen.room > 0


def only_leases(self: _Dispatch, seen: Process, now: float) -> bool:
    return seen.room > 0 or any(holder.is_lease for holder in seen.holders.values())


def a_try_without_an_answer_was_not_made(patch: Patch) -> None:
    start = Starts.start

    def hasty(self: Starts, *given: str) -> Any:
        outcome = start(self, *given)
        return NotStarted(outcome.reason) if isinstance(outcome, Unsure) else outcome

    patch.setattr(Starts, "start", hasty)


def one_is_put_back(patch: Patch) -> None:
    put_back = Grants.put_back

    def one(self: Grants, process: str, reserved: Any) -> Removed:
        return put_back(self, process, dict(list(reserved.items())[:1]))

    patch.setattr(Grants, "put_back", one)


def a_removal_ends_the_dispatch(patch: Patch) -> None:
    start = ReservationStarter.start

    def forget(self: ReservationStarter, reserved: Reserved) -> Settled:
        return replace(start(self, reserved), removed=False)

    patch.setattr(ReservationStarter, "start", forget)


def dispatch_and_forget(self: Starter, process: str, _leavers: bool) -> bool:
    self._dispatch(self.tools, Bell(process))
    return True


def too_early(self: DispatchFailed, report: Any, *_: Any) -> None:
    self.report, self.again_after = report, 0


STARTS = {
    "old reservations stay": Control(
        set_to(dispatch, "orphans", lambda *_: ()), _world(A, aim="invocations"), 1, "S4 S6"
    ),
    "a full process is left, although a reservation is old": Control(
        set_to(_Dispatch, "_may_change", only_leases), _world(A, aim="invocations"), 1, "S4 S6"
    ),
    "an uncertain start is forgotten": Control(
        set_to(_Dispatch, "_end", as_if_certain), _world(A, aim="dispatches"), 1, "S4 S6"
    ),
    "a failure rings too early": Control(
        set_to(DispatchFailed, "__init__", too_early), _world(A, aim="dispatches"), 1, "S4 S6"
    ),
    "a failure does not ring": Control(
        set_to(Starter, "_dispatch_received", dispatch_and_forget), _world(A, aim="dispatches"), 1, "S4 S6"
    ),
    "a try without an answer was not made": Control(
        a_try_without_an_answer_was_not_made, _world(A, aim="dispatches"), 1, "S4"
    ),
    "only one of a throttled batch is put back": Control(
        one_is_put_back, _world(A, B, limit=2, batch=True, aim="dispatches"), 1, "S4 S6"
    ),
    "a removal ends the dispatch": Control(
        a_removal_ends_the_dispatch, _world(A, B, rejects=("a",), batch=True), 0, "S6"
    ),
}

# Doorbells ---------------------------------------------------------------------------------------------------------


def a_refused_grant_ends_the_dispatch(self: _Dispatch) -> bool:
    return False


def a_leave_ends_the_dispatch(patch: Patch) -> None:
    one_round = _Dispatch._round

    def stop(self: _Dispatch, seen: Any) -> Any:
        before = len(self.report.left)
        again, now = one_round(self, seen)
        return again and len(self.report.left) == before, now

    patch.setattr(_Dispatch, "_round", stop)


def one_start_in_a_grant(patch: Patch) -> None:
    planned = _Dispatch._plan

    def cut(self: _Dispatch, *given: Any) -> Planned:
        found = planned(self, *given)
        return replace(found, starts=found.starts[:1])

    patch.setattr(_Dispatch, "_plan", cut)


def notes_first(self: _Dispatch, seen: Process, at: float | None, now: float) -> None:
    if at is not None and not now < seen.ring_at <= at:
        self.tools.grants.note_ring(seen.name, at)
        self.tools.doorbell.ring(Bell(seen.name, at=at), at - now)


def no_timer_after_a_grant(patch: Patch) -> None:
    look = _Dispatch._look_again

    def forget(self: _Dispatch, *given: Any) -> None:
        if not self.report.started:
            look(self, *given)

    patch.setattr(_Dispatch, "_look_again", forget)


def only_timers_ring(patch: Patch) -> None:
    ring = Doorbell.ring

    def silent(self: Doorbell, bell: Bell, delay: float = 0) -> None:
        if bell.at is not None:
            ring(self, bell, delay)

    patch.setattr(Doorbell, "ring", silent)


def an_event_does_not_ring(patch: Patch) -> None:
    handle = ClosedExecutions.handle

    def silent(self: ClosedExecutions, *given: Any) -> int | None:
        doorbell = copy.copy(self.doorbell)
        doorbell.ring = lambda *_: None  # type: ignore[method-assign]
        return handle(replace(self, doorbell=doorbell), *given)

    patch.setattr(ClosedExecutions, "handle", silent)


def rung_before_the_release(patch: Patch) -> None:
    after: list[str] = []

    def release_last(state: dict[str, Any]) -> None:
        after.append(state["Next"])
        state["Next"] = "ReleaseSlot"
        state["Catch"][-1]["Next"] = "ReleaseSlot"

    change_state(patch, "Ring", release_last)
    change_state(patch, "RecordOutcome", lambda state: state.update(Next="Ring"))
    change_state(patch, "ReleaseSlot", lambda state: state.update(Next=after[0]))


def _silent(state: dict[str, Any]) -> None:
    following = state["Next"]
    state.clear()
    state.update(Type="Pass", Next=following)


HEAVY = (Sent("a", weight=2), B)  # next to a lease, only b has a slot
BELLS = {
    "leave: does not ring": Control(only_timers_ring, _world(*HEAVY, limit=2, leased=600, cancels=("a",)), 0, "S6"),
    "limit: does not ring": Control(
        set_to(Operations, "set_limit", lambda self, *given: self.processes.set_limit(*given)),
        _world(Sent("a", weight=2), limits=(2,)),
        0,
        "S6",
    ),
    "workflow: does not ring": Control(state_with("Ring", _silent), _world(A, B), 0, "S6"),
    "workflow: rings before the release": Control(rung_before_the_release, _world(A, B), 0, "S6"),
    "handler: does not ring": Control(an_event_does_not_ring, _world(A, B, aim="ends"), 1, "S6"),
    "lease: does not ring": Control(
        set_to(lease_protocol.LeaseSteps, "_ring", lambda *_: None), _world(A, leases=(0,)), 0, "S6"
    ),
    "grant refused: ends the dispatch": Control(
        set_to(_Dispatch, "_after_refusal", a_refused_grant_ends_the_dispatch),
        _world(A, LOW, limit=2),
        0,
        "S6",
    ),
    "leave: ends the dispatch": Control(
        a_leave_ends_the_dispatch, _world(SKIPS, B, limit=2, leased=600, batch=True), 0, "S6"
    ),
    "cut: ends the dispatch": Control(one_start_in_a_grant, _world(A, B, limit=2, batch=True), 0, "S6"),
    "nothing is rung after a throttle": Control(
        set_to(_Dispatch, "_ring", lambda *_, **__: None), _world(A, aim="dispatches"), 1, "S6"
    ),
    "timer: none": Control(set_to(_Dispatch, "_look_again", lambda *_: None), _world(A, leased=30), 0, "S4 S6"),
    "timer: noted, then sent": Control(
        set_to(_Dispatch, "_look_again", notes_first), _world(A, leased=30, aim="dispatches"), 1, "S4 S6"
    ),
    "timer: none after a grant": Control(
        no_timer_after_a_grant, _world(A, B, limit=2, leased=30, batch=True, run_seconds=(900,)), 0, "S6"
    ),
    "timer: none for the end of a lease": Control(
        set_to(Process, "next_expiry", None), _world(A, leased=30), 0, "S4 S6"
    ),
    "a full process is left, although a lease will end": Control(
        set_to(_Dispatch, "_may_change", full_or_not), _world(A, leased=30), 0, "S4 S6"
    ),
}

# The workflow, leases ----------------------------------------------------------------------------------------------

# What ConfirmSlot assigns.
CONFIRMED = {
    "target": "job",
    "permitted": ["job"],
    "failure": {},
    "timeout_minutes": 480,
    "settle_seconds": 0,
    "caller": "NONE",
    "answer": "",
    "outcome": "",
    "starts": 0,
    "pages": 0,
}


def f13_no_confirm(patch: Patch) -> None:
    def skip(state: dict[str, Any]) -> None:
        following = state["Next"]
        state.clear()
        state.update(Type="Pass", Assign=CONFIRMED, Next=following)

    change_state(patch, "ConfirmSlot", skip)


def f2_freed_without_a_check_of_glue(patch: Patch) -> None:
    patch.setattr(JobRunSearch, "read_page", lambda self: setattr(self, "_ended", True))


def started_again_after_a_throttled_poll(patch: Patch) -> None:
    """Every throttle counts as one of the start."""

    def start(state: dict[str, Any]) -> None:
        state["Choices"].insert(0, {"Condition": "{% $start_again %}", "Next": "RunGlueJob"})

    change_state(patch, "IsGlueRunFound", start)


def an_error_of_the_poll_counts_as_no_run(patch: Patch) -> None:
    def trust(state: dict[str, Any]) -> None:
        trusted = state["Choices"][2]
        trusted["Condition"] = trusted["Condition"].replace("[", "['Glue.InvalidInputException', ")

    change_state(patch, "IsGlueRunKnownToHaveEnded", trust)


def a_lease_expires_at_its_end(patch: Patch) -> None:
    patch.setattr(Holder, "has_expired", lambda self, now: self.until is not None and now >= self.until)


WORKFLOW = {
    "f13_no_confirm": Control(f13_no_confirm, _world(A, frees=1), 0, "S1b S3"),
    "f2_freed_without_a_check_of_glue": Control(
        f2_freed_without_a_check_of_glue, _world(A, aim="ends", run_seconds=(900,)), 1, "S7"
    ),
    "released_at_a_task_timeout": Control(
        state_with("IsGlueRunKnownToHaveEnded", lambda state: state.update(Default="RecordOutcome")),
        _world(A, aim="polls"),
        1,
        "S7",
    ),
    "started_again_after_a_lost_answer": Control(
        state_with("RunGlueJob", lambda state: state["Retry"][0]["ErrorEquals"].append("Glue.SdkClientException")),
        _world(A),
        1,
        "S1b S7",
    ),
    "started_again_after_a_throttled_poll": Control(
        started_again_after_a_throttled_poll, _world(A, aim="polls"), 1, "S7"
    ),
    "an_error_of_the_poll_counts_as_no_run": Control(
        an_error_of_the_poll_counts_as_no_run, _world(A, aim="polls"), 1, "S7"
    ),
    # Other users' runs fill the page, and the own run is on the next one.
    "a_search_of_one_page": Control(
        state_with("FindGlueRun", lambda state: state["Assign"].update(next_page="")),
        _world(A, page=1, others=1),
        1,
        "S1b S7",
    ),
    "f4_redriven_without_a_slot": Control(
        state_with("RunGlueJob", lambda state: state["Arguments"].update(JobName="{% $target %}")),
        _world(A, aim="redrives"),
        2,
        "S1b S3 S7",
    ),
    "a_release_of_one": Control(
        state_with(
            "ReleaseSlot",
            lambda state: state["Arguments"].update(
                UpdateExpression="SET slots_in_use = slots_in_use - :one REMOVE holders.#me"
            ),
        ),
        _world(Sent("a", weight=2), limit=2),
        0,
        "S2",
    ),
    "a_lease_expires_at_its_end": Control(
        a_lease_expires_at_its_end, _world(leases=(0, 4), blocks=(-90, 0), lease_wait=200), 0, "S1c"
    ),
    "a_lease_overtakes_a_request": Control(
        set_to(lease_protocol, "NO_TARGET", "job"), _world(A, B, leases=(0,)), 0, "S8 S6"
    ),
}
CONTROLS = ROWS | GRANTS | STARTS | BELLS | WORKFLOW


@pytest.mark.parametrize("name", CONTROLS)
def test_without_its_guard_a_small_world_of_slots_breaks(name: str, monkeypatch: Patch) -> None:
    CONTROLS[name].check(monkeypatch)


# Searches of these worlds would take longer. With another order of calls, other seeds break.
SEEDS = {
    "grant: of an old plan": (SEEN, _world(LOW, HIGH, A, batch=True, dispatchers=2), range(2500, 2600)),
    "put back: leaves grants as it is": (
        replaced(grants, "PUT_BACK_UPDATE", CHANGED, KEPT),
        _world(A, LOW, HIGH, limit=2),
        range(500, 700),
    ),
    "freed by an operator: leaves grants as it is": (
        replaced(protocol, "FREE_UPDATE", CHANGED, KEPT),
        _world(A, LOW, HIGH, limit=2, frees=1, dispatchers=2),
        range(500, 700),
    ),
}


@pytest.mark.parametrize("name", SEEDS)
def test_without_its_guard_a_random_schedule_breaks_the_order(name: str, monkeypatch: Patch) -> None:
    remove, make, seeds = SEEDS[name]
    remove(monkeypatch)
    assert breaks(lambda _: make(), seeds, "S5", 1)
