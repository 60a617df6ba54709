"""Without one of its protections, a small world of children or of callers breaks the guarantee."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from slotkeeper.slots import run_report, settlement, work
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import ChildChecks, DeadHolders, Held, Verdict
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.work import Children, Work, WorkCheck
from tests.simulation import slots_world
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import FORBIDDEN, SlotsWorld
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import Control, set_to, state_with
from tests.simulation.worlds import World

Patch = pytest.MonkeyPatch


def _world(**given: Any) -> Callable[[], World]:
    """A world with one request, whose process has a child as target. See Plan."""
    return lambda: SlotsWorld(Plan(**({"machines": ("p",)} | given)))


def _condition(state: str, following: str, old: str, new: str) -> Callable[[Patch], None]:
    """Another condition of the first choice of a state that leads to `following`."""

    def change(fields: dict[str, Any]) -> None:
        choice = next(each for each in fields["Choices"] if each["Next"] == following and old in each["Condition"])
        choice["Condition"] = choice["Condition"].replace(old, new)

    return state_with(state, change)


# Children ----------------------------------------------------------------------------------------------------------


def slot_is_freed_while_the_child_is_open(patch: Patch) -> None:
    conclude = DeadHolders.conclude

    def free(self: DeadHolders, held: Held, found: WorkCheck, report: Any, *given: Any) -> Verdict:
        return self._free(held, report) if held.has_child else conclude(self, held, found, report, *given)

    patch.setattr(DeadHolders, "conclude", free)


def adopted_child_is_stopped(patch: Patch) -> None:
    conclude = DeadHolders.conclude

    def forget(self: DeadHolders, held: Held, found: WorkCheck, *given: Any) -> Verdict:
        held = replace(held, holder=replace(held.holder, redriven=False))
        newest = found.newest and replace(found.newest, redrives=0)
        return conclude(self, held, replace(found, newest=newest), *given)

    patch.setattr(DeadHolders, "conclude", forget)


def succeeded_child_is_recorded_as_failed(patch: Patch) -> None:
    decide = settlement.decide
    patch.setattr(settlement, "decide", lambda execution, _, *given: decide(execution, None, *given))


def an_existing_child_counts_as_a_failed_start(patch: Patch) -> None:
    def keep(state: dict[str, Any]) -> None:
        also = copy.deepcopy(state["Catch"][-1]) | {"Next": "RecordOutcome"}
        also["ErrorEquals"] = ["StepFunctions.ExecutionAlreadyExistsException"]
        state["Catch"].insert(0, also)

    change_state(patch, "RunStateMachine", keep)


LATE: dict[str, Any] = {"aim": "late", "run_seconds": (60,)}
SETTLES: dict[str, Any] = {"settle_seconds": 100, "run_seconds": (60,), "aim": "ends"}
SETTLES_LONG = SETTLES | {"settle_seconds": 250, "run_seconds": (400,), "child_redrives": 1}
REDRIVEN: dict[str, Any] = {"first_run": 60, "fails": 1, "child_redrives": 1, "run_seconds": (300,)}

CHILDREN = {
    "absent_child_is_checked_without_a_gap": Control(set_to(slots_world, "CHECK_GAP", 0), _world(**LATE), 2, "S7"),
    "absent_child_counts_after_one_read_of_the_workflow": Control(
        _condition("HasChildEnded", "WaitForChild", "$searches < 3", "$searches < 1"), _world(**LATE), 1, "S7"
    ),
    "slot_is_freed_while_the_child_is_open": Control(
        slot_is_freed_while_the_child_is_open, _world(aim="ends", run_seconds=(900,)), 1, "S1b S7"
    ),
    "slot_is_released_after_a_timeout_of_the_task": Control(
        state_with("RunStateMachine", lambda state: state["Catch"][-1].update(Next="RecordOutcome")),
        _world(fails=1),
        1,
        "S7",
    ),
    "open_child_is_not_stopped": Control(
        set_to(Children, "stop", lambda *_: None),
        _world(run_seconds=(900,), aim="deaths", first_run=60),
        1,
        "S4",
    ),
    "any_execution_of_the_name_is_ours": Control(
        set_to(work, "_has_started", lambda *_: True),
        _world(namesakes=1, fails=1),
        1,
        "S10",
    ),
    "any_execution_of_the_name_is_the_workflows": Control(
        _condition("HasChildEnded", "NameTaken", "$not($is_ours)", "false"), _world(namesakes=1), 0, "S3"
    ),
    "settle_time_is_not_waited_for": Control(set_to(Work, "settles_at", lambda *_: 0), _world(**SETTLES), 2, "S1b"),
    "settle_time_is_not_waited_for_by_the_workflow": Control(
        _condition("HasChildEnded", "SettleChild", "$closed_seconds < $settle_seconds", "false"),
        _world(**SETTLES),
        1,
        "S1b",
    ),
    "redriven_execution_starts_its_child_without_a_slot": Control(
        state_with("RunStateMachine", lambda state: state["Arguments"].update(StateMachineArn="{% $target %}")),
        _world(aim="redrives"),
        2,
        "S1b S3",
    ),
    "redriven_child_is_not_adopted": Control(
        set_to(ChildChecks, "adopt_redriven", lambda *_: None), _world(**REDRIVEN), 0, "S1b"
    ),
    "adopted_child_is_stopped": Control(adopted_child_is_stopped, _world(**REDRIVEN), 0, "S10"),
    "succeeded_child_is_recorded_as_failed": Control(succeeded_child_is_recorded_as_failed, _world(), 1, "S7"),
    "settled_child_is_not_read_again": Control(
        state_with("SettleChild", lambda state: state.update(Assign={"closed_seconds": 1e9}, Next="HasChildEnded")),
        _world(**SETTLES_LONG),
        1,
        "S7",
    ),
    "an_existing_child_counts_as_a_failed_start": Control(
        an_existing_child_counts_as_a_failed_start, _world(), 1, "S7"
    ),
}

# Targets and permissions -------------------------------------------------------------------------------------------


def any_target_is_confirmed(patch: Patch) -> None:
    def permit(state: dict[str, Any]) -> None:
        state["Choices"] = [each for each in state["Choices"] if each["Next"] != "TargetNotPermitted"]

    change_state(patch, "ChooseWork", permit)


def _denied(**given: Any) -> Callable[[], World]:
    return _world(aim="denials", run_seconds=(60,), **given)


DENIALS = {
    "any_job_is_confirmed": Control(any_target_is_confirmed, _denied(target="another", machines=()), 0, "S10"),
    "any_state_machine_is_confirmed": Control(any_target_is_confirmed, _denied(target=FORBIDDEN), 0, "S10"),
    "every_denial_is_one_of_the_start": Control(
        _condition("IsGlueRunKnownToHaveEnded", "RecordOutcome", "glue:StartJobRun ", "glue:"),
        _denied(denials=("reads",), machines=()),
        1,
        "S7",
    ),
    "a_denied_start_is_searched_for": Control(
        _condition("IsGlueRunKnownToHaveEnded", "RecordOutcome", "glue:StartJobRun ", "nothing"),
        _denied(denied=("starts", "reads"), machines=()),
        0,
        "S4",
    ),
    "a_denied_check_is_not_counted": Control(
        set_to(run_report, "is_denied", lambda _: False), _denied(denials=("reads",), machines=()), 1, "S4"
    ),
}

# Callers -----------------------------------------------------------------------------------------------------------


def no_heartbeat(patch: Patch) -> None:
    def skip(state: dict[str, Any]) -> None:
        state.clear()
        state.update(Type="Pass", Assign={"caller": "WAITS"}, Next="ChooseWork")

    change_state(patch, "AskCaller", skip)


def status_event_of_a_malformed_process_settles(patch: Patch) -> None:
    handle, read = ClosedExecutions.handle, Slots.read

    def ignore(self: Slots, name: str) -> Any:
        try:
            return read(self, name)
        except MalformedProcess:
            return None

    def blind(self: ClosedExecutions, *given: Any) -> int | None:
        slots = copy.copy(self.slots)
        slots.read = partial(ignore, slots)  # type: ignore[method-assign]
        return handle(replace(self, slots=slots), *given)

    patch.setattr(ClosedExecutions, "handle", blind)


def _caller(**given: Any) -> Callable[[], World]:
    return _world(requests=(Sent("a", caller=True),), **given)


CALLERS = {
    "no_heartbeat": Control(no_heartbeat, _caller(leaves=1), 0, "S9"),
    "a_throttled_heartbeat_counts_as_gone": Control(
        state_with("AskCaller", lambda state: state["Catch"][0]["Assign"].update(caller="GONE")), _caller(), 1, "S9"
    ),
    "status_event_of_a_malformed_process_settles": Control(
        status_event_of_a_malformed_process_settles, _caller(damages=1), 1, "S3 S4 S7"
    ),
}
CONTROLS = CHILDREN | DENIALS | CALLERS


@pytest.mark.parametrize("name", CONTROLS)
def test_without_its_protection_a_world_of_children_or_callers_breaks(name: str, monkeypatch: Patch) -> None:
    CONTROLS[name].check(monkeypatch)
