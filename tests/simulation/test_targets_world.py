"""The guarantees hold for children and for callers in every order of events, and break without each protection."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots import callers, protocol, run_report, settlement, work
from slotkeeper.slots.callers import CallerAnswers
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import CheckOutcome, ChildChecks, DeadHolders, Held
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.targets import NO_TARGET
from slotkeeper.slots.work import Child, Children, GlueRun
from tests.simulation import small_worlds, targets_world, workflow
from tests.simulation.slots_state import GRACE, Plan
from tests.simulation.targets_world import FORBIDDEN, TargetsWorld
from tests.simulation.transcript import Program
from tests.simulation.workflow import SLOTS, change_state
from tests.simulation.world_runs import first_broken, first_violation
from tests.simulation.worlds import NOT_SENT, Choice, Violation
from tests.workflow import interpreter
from tests.workflow.definition import states

Patch = pytest.MonkeyPatch
_ABOUT = ("child", "a caller", "no role", "denied", "process for leases")
QUICK = [name for name, small in small_worlds.SMALL.items() if small.quick and any(word in name for word in _ABOUT)]


@pytest.mark.parametrize("name", QUICK)
def test_children_and_callers_in_every_state(name: str) -> None:
    small = small_worlds.SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")


def test_a_child_with_a_large_output_has_succeeded_even_if_states_all_does_not_catch_the_error(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(interpreter, "ALL_CATCHES_DATA_LIMIT", False)  # the worlds above: it does
    small = small_worlds.SMALL["child with a large output, a caller"]
    assert first_violation(small.make, small.faults) == ("", "")


def test_children_and_callers_in_random_schedules_which_enter_every_state() -> None:
    assert first_broken(targets_world.random_world, range(1260, 1560)) == ("", -1)
    assert workflow.entered >= states().keys()


# Controls ----------------------------------------------------------------------------------------------------------


def _condition(patch: Patch, state: str, following: str, old: str, new: str) -> None:
    """Another condition of the first choice of a state that leads to `following`."""

    def change(fields: dict[str, Any]) -> None:
        choice = next(each for each in fields["Choices"] if each["Next"] == following and old in each["Condition"])
        choice["Condition"] = choice["Condition"].replace(old, new)

    change_state(patch, state, change)


def absent_child_is_checked_without_a_gap(patch: Patch) -> None:
    patch.setattr(TargetsWorld, "_janitor_times", lambda _: (GRACE, 0))


def absent_child_counts_after_one_read_of_the_workflow(patch: Patch) -> None:
    _condition(patch, "HasChildEnded", "WaitForChild", "$searches < 3", "$searches < 1")


def slot_is_freed_while_the_child_is_open(patch: Patch) -> None:
    def conclude(self: DeadHolders, held: Any, _child: Any, _at: float, report: Any, _settle: Any) -> CheckOutcome:
        return self._free(held, report)

    patch.setattr(DeadHolders, "conclude_child", conclude)


def slot_is_released_after_a_timeout_of_the_task(patch: Patch) -> None:
    change_state(patch, "RunStateMachine", lambda state: state["Catch"][-1].update(Next="KeepRequest"))


def a_large_output_is_an_error_like_others(patch: Patch) -> None:
    for name in ("RunStateMachine", "ReadChild"):
        change_state(patch, name, lambda state: state["Catch"].pop(0))


def child_that_could_not_be_read_is_settled_without_it(patch: Patch) -> None:
    patch.setattr(Settlement, "_unread_child", lambda *_: None)


def settled_child_is_not_read_again(patch: Patch) -> None:
    change_state(patch, "SettleChild", lambda state: state.update(Assign={"closed_seconds": 1e9}, Next="HasChildEnded"))


def open_child_is_not_stopped(patch: Patch) -> None:
    patch.setattr(Children, "stop", lambda *_: None)


def any_execution_of_the_name_is_ours(patch: Patch) -> None:
    patch.setattr(work, "Child", lambda **given: Child(**(given | {"is_ours": True})))


def any_execution_of_the_name_is_the_workflows(patch: Patch) -> None:
    _condition(patch, "HasChildEnded", "NameTaken", "$not($is_ours)", "false")


def settle_time_is_not_waited_for(patch: Patch) -> None:
    patch.setattr(Child, "settles_at", lambda *_: 0)


def settle_time_is_not_waited_for_by_the_workflow(patch: Patch) -> None:
    _condition(patch, "HasChildEnded", "SettleChild", "$closed_seconds < $settle_seconds", "false")


def redriven_execution_starts_its_child_without_a_slot(patch: Patch) -> None:
    change_state(patch, "RunStateMachine", lambda state: state["Arguments"].update(StateMachineArn="{% $target %}"))


def redriven_child_is_not_adopted(patch: Patch) -> None:
    patch.setattr(ChildChecks, "adopt_redriven", lambda *_: None)


def adopted_child_is_stopped(patch: Patch) -> None:
    conclude = DeadHolders.conclude_child

    def forget(self: DeadHolders, held: Held, child: Child | None, *given: Any) -> CheckOutcome:
        held = replace(held, holder=replace(held.holder, redriven=False))
        return conclude(self, held, child and replace(child, redrives=0), *given)

    patch.setattr(DeadHolders, "conclude_child", forget)


def succeeded_child_is_kept_as_failed(patch: Patch) -> None:
    account = Settlement._account_for
    patch.setattr(Settlement, "_account_for", lambda self, *given: account(self, *given[:-1], None))


def an_existing_child_counts_as_a_failed_start(patch: Patch) -> None:
    def keep(state: dict[str, Any]) -> None:
        also = copy.deepcopy(state["Catch"][-1]) | {"Next": "KeepRequest"}
        also["ErrorEquals"] = ["StepFunctions.ExecutionAlreadyExistsException"]
        state["Catch"].insert(0, also)

    change_state(patch, "RunStateMachine", keep)


CHILD = {"machines": ("p",), "janitor_runs": 0, "janitor_ahead": False, "event_steps": False, "starters": 1}
LATE = CHILD | {"aim": "late"}
SETTLES = CHILD | {"settle_seconds": 100, "run_seconds": (60,), "aim": "ends"}
SETTLES_LONG = SETTLES | {"settle_seconds": 250, "run_seconds": (400,), "child_redrives": 1}
REDRIVEN = CHILD | {"fails": 1, "child_redrives": 1, "run_seconds": (300,)}


@pytest.mark.parametrize(
    ("remove", "plan", "timeless", "faults", "broken"),
    [
        (absent_child_is_checked_without_a_gap, LATE, False, 2, "S1b"),
        (absent_child_counts_after_one_read_of_the_workflow, LATE, False, 1, "S1b"),
        (slot_is_freed_while_the_child_is_open, CHILD, True, 1, "S1b"),
        (slot_is_released_after_a_timeout_of_the_task, CHILD | {"fails": 1}, True, 1, "S1b"),
        (open_child_is_not_stopped, CHILD | {"run_seconds": (900,), "aim": "deaths"}, False, 1, "S4"),
        (any_execution_of_the_name_is_ours, CHILD | {"namesakes": 1, "fails": 1}, True, 1, "S10"),
        (any_execution_of_the_name_is_the_workflows, CHILD | {"namesakes": 1}, True, 0, "S3"),
        (settle_time_is_not_waited_for, SETTLES, False, 2, "S1b"),
        (settle_time_is_not_waited_for_by_the_workflow, SETTLES, False, 1, "S1b"),
        (redriven_child_is_not_adopted, REDRIVEN, False, 0, "S1b"),
        (adopted_child_is_stopped, REDRIVEN, False, 0, "S10"),
        (succeeded_child_is_kept_as_failed, CHILD, True, 1, "S3"),
        (a_large_output_is_an_error_like_others, CHILD | {"large_outputs": True}, True, 0, "S3"),
        (child_that_could_not_be_read_is_settled_without_it, CHILD | {"large_outputs": True}, True, 1, "S3"),
        (settled_child_is_not_read_again, SETTLES_LONG, False, 1, "S3"),
        (an_existing_child_counts_as_a_failed_start, CHILD, True, 1, "S3"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_protection_a_world_of_children_breaks(
    remove: Callable[[Patch], None], plan: dict[str, Any], timeless: bool, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: TargetsWorld(Plan(("a",), **plan), timeless=timeless), faults)
    assert name == broken, history


def a_process_for_leases_admits_requests(patch: Patch) -> None:
    patch.setattr(protocol, "HAS_TARGET", "attribute_exists(target) AND target <> :no_target OR target = :no_target")


def any_target_is_confirmed(patch: Patch) -> None:
    def permit(state: dict[str, Any]) -> None:
        state["Choices"] = [each for each in state["Choices"] if each["Next"] != "TargetNotPermitted"]

    change_state(patch, "ChooseWork", permit)


def every_denial_is_one_of_the_start(patch: Patch) -> None:
    _condition(patch, "IsGlueRunKnownToHaveEnded", "KeepRequest", "glue:StartJobRun ", "glue:")


def a_denied_start_is_searched_for(patch: Patch) -> None:
    _condition(patch, "IsGlueRunKnownToHaveEnded", "KeepRequest", "glue:StartJobRun ", "nothing")


def a_denied_check_is_not_counted(patch: Patch) -> None:
    patch.setattr(run_report, "is_denied", lambda _: False)


def a_denied_answer_is_repeated(patch: Patch) -> None:
    patch.setattr(callers, "is_denied", lambda _: False)


DENIED: dict[str, Any] = CHILD | {"aim": "denials", "run_seconds": (60,)}
GLUE = {"machines": ()}


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (a_process_for_leases_admits_requests, {"target": NO_TARGET, **GLUE}, 0, "S10"),
        (any_target_is_confirmed, {"target": "another", **GLUE}, 0, "S10"),
        (any_target_is_confirmed, {"target": FORBIDDEN}, 0, "S10"),
        (every_denial_is_one_of_the_start, {"denials": ("reads",), **GLUE}, 1, "S1b"),
        (a_denied_start_is_searched_for, {"denied": ("starts", "reads"), **GLUE}, 0, "S4"),
        (a_denied_check_is_not_counted, {"denials": ("reads",), **GLUE}, 1, "S4"),
        (a_denied_answer_is_repeated, {"denials": ("answers",), "callers": "a"}, 1, "S3"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_protection_a_denial_breaks_a_world(
    remove: Callable[[Patch], None], plan: dict[str, Any], faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: TargetsWorld(Plan(("a",), **(DENIED | plan)), timeless=False), faults)
    assert name == broken, history


def _dead_before_its_child(world: TargetsWorld) -> None:
    """Abort the workflow before it starts its child, let the janitor free the slot, and redrive the workflow."""
    Program.merges = False  # one schedule reaches no state twice
    (name,) = world.advance(lambda: [name for name in world.actors if _starts_a_child(world, name)])
    execution = name.removeprefix("workflow ")
    world.take(Choice("abort", execution, "ABORTED", is_fault=True))
    world.advance(lambda: not world.services["dynamodb"][SLOTS]["p"]["holders"]["M"].fields)
    world.take(Choice("redrive", execution, "", is_fault=True))
    world.advance(lambda: not (world.steps() or world.time_steps()))


def _starts_a_child(world: TargetsWorld, name: str) -> bool:
    return _is_at(world, name, "start_execution") and world.service_of(world.actors[name].question) == "children"


def test_without_its_protection_a_redriven_workflow_starts_a_child_without_a_slot(monkeypatch: Patch) -> None:
    plan = Plan(("a",), **CHILD)
    _dead_before_its_child(TargetsWorld(plan))
    redriven_execution_starts_its_child_without_a_slot(monkeypatch)
    small_worlds.forget()
    with pytest.raises(Violation, match="S1b"):
        _dead_before_its_child(TargetsWorld(plan))


def test_a_janitor_run_that_cannot_read_the_holders_settles_no_request() -> None:
    Program.merges = False
    world = TargetsWorld(Plan(("a",), events_lost=True, **CHILD))
    (name,) = world.advance(lambda: [each for each in world.actors if _is_at(world, each, "wait_for_end")])
    execution = name.removeprefix("workflow ")
    world.take(Choice("abort", execution, "ABORTED", is_fault=True))
    world.take(Choice("end_child", execution, "SUCCEEDED"))
    settled_from = world.now + GRACE
    world.advance(lambda: world.now >= settled_from and _is_at(world, "scheduled run", "scan"))
    world.take(Choice("call", "scheduled run", NOT_SENT, is_fault=True))
    world.advance(lambda: not (world.steps() or world.time_steps()))  # keeping the request breaks S3
    world.check_end()


def test_a_slot_is_kept_until_the_request_of_its_waiting_caller_is_settled() -> None:
    Program.merges = False
    world = TargetsWorld(Plan(("a",), events_lost=True, **(CALLER | {"machines": ()})))
    (name,) = world.advance(lambda: [each for each in world.actors if _is_at(world, each, "get_item")])
    world.take(Choice("abort", name.removeprefix("workflow "), "ABORTED", is_fault=True))
    settled_from = world.now + GRACE
    for _ in range(2):  # runs that cannot list the closed executions
        world.advance(lambda: world.now >= settled_from and _is_at(world, "scheduled run", "list_executions"))
        world.take(Choice("call", "scheduled run", NOT_SENT, is_fault=True))
        world.advance(lambda: "scheduled run" not in world.actors)
    world.advance(lambda: not (world.steps() or world.time_steps()))
    world.check_end()  # a caller that waits breaks S9


def _is_at(world: TargetsWorld, actor: str, operation: str) -> bool:
    return actor in world.actors and world.actors[actor].question.operation == operation


def answered_before_the_release(patch: Patch) -> None:
    change_state(patch, "RunStateMachine", lambda state: state.update(Next="AnswerSuccess"))


def no_answer_after_answer_failed(patch: Patch) -> None:
    patch.setattr(settlement, "ANSWER_FAILED", "another error")


def an_answer_of_the_janitor_is_not_repeated(patch: Patch) -> None:
    answer = CallerAnswers.answer_closed
    patch.setattr(CallerAnswers, "answer_closed", lambda *given: answer(*given) or True)


def no_answer_for_an_aborted_workflow(patch: Patch) -> None:
    patch.setattr(settlement, "has_caller", lambda _: False)


def no_answer_for_a_dead_letter(patch: Patch) -> None:
    patch.setattr("slotkeeper.slots.admission.token_of", lambda _: "")


def returned_request_has_no_token(patch: Patch) -> None:
    def forget(state: dict[str, Any]) -> None:
        state["Arguments"]["MessageBody"] = state["Arguments"]["MessageBody"].replace(", $token]", "]")

    change_state(patch, "ReturnRequest", forget)


def no_heartbeat(patch: Patch) -> None:
    def skip(state: dict[str, Any]) -> None:
        state.clear()
        state.update(Type="Pass", Assign={"caller": "WAITS"}, Next="ChooseWork")

    change_state(patch, "AskCaller", skip)


def a_throttled_heartbeat_counts_as_gone(patch: Patch) -> None:
    change_state(patch, "AskCaller", lambda state: state["Catch"][0]["Assign"].update(caller="GONE"))


def dead_letter_has_the_token(patch: Patch) -> None:
    patch.setattr("slotkeeper.slots.queues.without_token", lambda body: body)


def status_event_of_a_malformed_process_settles(patch: Patch) -> None:
    read = ClosedExecutions._process_of

    def ignore(self: ClosedExecutions, name: str) -> Any:
        try:
            return read(self, name)
        except MalformedProcess:
            return None

    patch.setattr(ClosedExecutions, "_process_of", ignore)


def run_settles_requests_of_malformed_processes(patch: Patch) -> None:
    settle = Settlement.settle_found
    patch.setattr(Settlement, "settle_found", lambda *given: settle(*given[:4]))


def a_succeeded_run_counts_as_failed(patch: Patch) -> None:
    patch.setattr(GlueRun, "has_succeeded", False)


CALLER = CHILD | {"callers": "a"}


@pytest.mark.parametrize(
    ("remove", "plan", "faults"),
    [
        (answered_before_the_release, CALLER, 0),
        (no_answer_after_answer_failed, CALLER | {"refusals": 7}, 0),
        (an_answer_of_the_janitor_is_not_repeated, CALLER | {"refusals": 8}, 0),
        (no_answer_for_an_aborted_workflow, CALLER, 1),
        (no_answer_for_a_dead_letter, CALLER | {"cancels": ("a",)}, 0),
        (no_heartbeat, CALLER | {"leaves": 1}, 0),
        (a_throttled_heartbeat_counts_as_gone, CALLER, 1),
        (dead_letter_has_the_token, CALLER | {"cancels": ("a",)}, 0),
        (a_succeeded_run_counts_as_failed, CALLER | {"machines": ()}, 1),
        (status_event_of_a_malformed_process_settles, CALLER | {"damages": 1}, 1),
        (run_settles_requests_of_malformed_processes, CALLER | {"damages": 1, "events_lost": True}, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_protection_a_caller_is_not_served(
    remove: Callable[[Patch], None], plan: dict[str, Any], faults: int, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: TargetsWorld(Plan(("a",), **plan), timeless=True), faults)
    assert name == "S9", history


def request_is_returned_although_its_token_is_lost(patch: Patch) -> None:
    change_state(patch, "IsCallerLost", lambda state: state.update(Choices=[]))


@pytest.mark.parametrize(
    "remove",
    [returned_request_has_no_token, request_is_returned_although_its_token_is_lost],
    ids=lambda it: it.__name__,
)
def test_a_returned_request_without_its_token_is_another_request(
    remove: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: TargetsWorld(Plan(("a",), aim="redrives", **CALLER), timeless=True), 2)
    assert name == "S3", history
