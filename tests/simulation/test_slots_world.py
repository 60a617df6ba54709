"""S1 to S8 hold in every order of events. As controls, the same worlds find the bug when a guard is removed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from slotkeeper.slots import janitor, processes, settlement
from slotkeeper.slots import protocol as slots
from slotkeeper.slots.admission import Deferred, Starter
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import judge
from slotkeeper.slots.executions import NameTaken, StartUnavailable, Workflow
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Candidate, Slots
from slotkeeper.slots.request import Delivery, parse_request
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import MARKER, GlueRuns, JobRunSearch
from tests.simulation import scheduling, slots_actors, slots_state, slots_world, small_worlds, workflow
from tests.simulation.__main__ import Tally
from tests.simulation.explained import note_items, wrong_explanations
from tests.simulation.scheduling import LEAST_TAKE_OVERS, PER_SCHEDULES
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.transcript import Program
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import breaks, first_broken, first_violation
from tests.simulation.worlds import THROTTLE, Choice
from tests.support.template import parsed_template
from tests.workflow.definition import states

Patch = pytest.MonkeyPatch
SEEDS = range(1440, 1590)
QUICK = [name for name, small in small_worlds.SMALL.items() if small.quick and ("slot" in name or "priorit" in name)]


@pytest.mark.parametrize("name", QUICK)
def test_s1_to_s7_hold_and_the_explanation_is_right_in_every_state(name: str, monkeypatch: Patch) -> None:
    items = note_items(monkeypatch)
    small = small_worlds.SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")
    assert wrong_explanations(items) == []


def test_the_worlds_use_the_times_of_the_template() -> None:
    template = parsed_template()
    parameters, resources = template["Parameters"], template["Resources"]
    assert parameters["JanitorSchedule"]["Default"] == "rate(1 minute)"
    assert slots_state.PERIOD == 60
    assert parameters["GraceSeconds"]["Default"] == slots_state.GRACE
    assert parameters["LookGapSeconds"]["Default"] == slots_state.LOOK_GAP
    queue = resources["RequestQueue"]["Properties"]
    assert queue["VisibilityTimeout"] == slots_actors.VISIBILITY
    assert queue["MessageRetentionPeriod"] == slots_actors.RETENTION
    assert queue["RedrivePolicy"]["maxReceiveCount"] == slots_actors.MOST_RECEIVES
    # All bounds in time are multiples of the clock's step.
    for seconds in (slots_state.PERIOD, slots_state.GRACE, slots_state.LOOK_GAP):
        assert seconds % slots_state.STEP == 0


def test_s1_to_s8_hold_in_random_schedules_which_take_over_leases() -> None:
    assert first_broken(slots_world.random_world, SEEDS) == ("", -1)
    for how, least in LEAST_TAKE_OVERS.items():
        assert slots_state.take_overs[how] * PER_SCHEDULES >= least * len(SEEDS)


def test_many_schedules_that_reach_too_little_are_reported() -> None:
    def unreached(kind: str, schedules: int) -> list[str]:
        tally = Tally()
        drawn = {"world": kind, "schedules": schedules, "steps": 1, "faults": 0, "seconds": 1.0}
        tally.add(drawn | {"take_overs": {"done": 200, "refused": 19}, "entered": states().keys() - {"AskCaller"}})
        return tally.unreached()

    assert unreached("slots", 1_500) == ["take-overs refused: 19 in 1,500 schedules of slots; expected 20 in 1,500"]
    assert unreached("targets", 1_500) == ["no schedule of targets enters AskCaller"]
    assert unreached("slots", 1_499) == unreached("targets", 1_499) == unreached("token", 1_500) == []


def _until(world: SlotsWorld, operation: str) -> str:
    """Run a world until an actor is at this call; the actor's name."""
    Program.merges = False  # one schedule reaches no state twice
    while True:
        for name, actor in world.actors.items():
            if actor.question.operation == operation:
                return name
        world.take((world.steps() or world.time_steps())[0])


def _to_the_end(world: SlotsWorld) -> tuple[str, list[str]]:
    """Run a world to its end; the status of the request's execution, and the states of its runs."""
    while choices := world.steps() or world.time_steps():
        world.take(choices[0])
    world.check_end()
    ((name, execution),) = world.services["stepfunctions"].fields.items()
    runs = world.services["glue"]["job"]["runs"]
    return execution["status"], [run["state"] for run in runs if run["arguments"].get(MARKER) == name]


BUSY = 50  # other users' runs
ARGUMENT_BYTES = 13 * 1024


def test_a_throttled_start_of_a_busy_job_succeeds_with_large_arguments() -> None:
    world = SlotsWorld(Plan(("a*",), others=BUSY, argument_bytes=ARGUMENT_BYTES))
    workflow_name = _until(world, "start_job_run")
    world.take(Choice("call", workflow_name, THROTTLE, is_fault=True))
    for _ in range(BUSY):
        world.take(Choice("another_run"))
    assert _to_the_end(world) == ("SUCCEEDED", ["SUCCEEDED"])


@pytest.mark.parametrize("fails", [0, 1])
def test_a_throttled_poll_of_a_busy_job_waits_for_its_run_with_large_arguments(fails: int) -> None:
    world = SlotsWorld(Plan(("a*",), others=BUSY, argument_bytes=ARGUMENT_BYTES, run_seconds=(3000,), fails=fails))
    workflow_name = _until(world, "wait_for_end")
    world.take(Choice("fail_task", workflow_name, "ThrottlingException", is_fault=True))
    for _ in range(BUSY):
        world.take(Choice("another_run"))
    assert _to_the_end(world) == (("FAILED", ["FAILED"]) if fails else ("SUCCEEDED", ["SUCCEEDED"]))


def test_a_late_run_is_stopped_and_its_request_is_kept() -> None:
    world = SlotsWorld(Plan(("a",), run_seconds=(3 * 60 * 60,), stop_seconds=100))
    world.take(Choice("fail_task", _until(world, "wait_for_end"), "ThrottlingException", is_fault=True))
    assert _to_the_end(world) == ("FAILED", ["STOPPED"])
    assert "GlueRunIsLate" in workflow.entered


def test_a_seed_gives_the_same_schedule_after_other_schedules() -> None:
    def replayed() -> list[str]:
        random, lines = slots_world.Random(7), list[str]()
        scheduling.replay(slots_world.random_world(random), random, lines.append)
        return lines

    first = replayed()
    first_broken(slots_world.random_world, range(3))
    assert replayed() == first


@pytest.mark.parametrize("name", ["1 request, 1 slot, janitor at any time", "token, 3 clients, clocks apart, one dies"])
def test_merged_histories_continue_in_the_same_way(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Program, "merged", [])
    small = small_worlds.SMALL[name]
    first_violation(small.make, small.faults)
    assert Program.merged
    for history, known in Program.merged[:: max(1, len(Program.merged) // 300)]:
        assert history.behaves_as(known), (history.answers, known.answers)


# Controls ----------------------------------------------------------------------------------------------------------


def f6_not_equal_instead_of_less(patch: Patch) -> None:
    patch.setattr(slots, "ROOM_FOR_ONE", "slots_in_use <> slot_limit AND size(holders) < :most")


# What ConfirmSlot assigns.
CONFIRMED = {
    "target": "job",
    "permitted": ["job"],
    "token": {},
    "timeout_minutes": 480,
    "settle_seconds": 0,
    "caller": "NONE",
    "answer": "",
    "starts": 0,
    "pages": 0,
}


def f13_no_confirm(patch: Patch) -> None:
    def skip(state: dict[str, Any]) -> None:
        following = state["Next"]
        state.clear()
        state.update(Type="Pass", Assign=CONFIRMED, Next=following)

    change_state(patch, "ConfirmSlot", skip)


def f5_released_without_condition(patch: Patch) -> None:
    change_state(patch, "ReleaseSlot", lambda state: state["Arguments"].pop("ConditionExpression"))


def f1_cancelled_after_an_unanswered_start(patch: Patch) -> None:
    start = Workflow.start

    def hasty(self: Workflow, request: Any) -> Any:
        try:
            return start(self, request)
        except BotoCoreError as error:
            return StartUnavailable(str(error))

    patch.setattr(Workflow, "start", hasty)
    f13_no_confirm(patch)  # otherwise the confirm prevents the bug


def f2_freed_without_a_check_of_glue(patch: Patch) -> None:
    def read_page(self: JobRunSearch) -> None:
        self._ended = True

    patch.setattr(JobRunSearch, "read_page", read_page)


def released_at_a_task_timeout(patch: Patch) -> None:
    change_state(patch, "IsGlueRunKnownToHaveEnded", lambda state: state.update(Default="KeepRequest"))


def started_again_after_a_lost_answer(patch: Patch) -> None:
    def retry(state: dict[str, Any]) -> None:
        state["Retry"][0]["ErrorEquals"].append("Glue.SdkClientException")

    change_state(patch, "RunGlueJob", retry)


def started_again_after_a_throttled_poll(patch: Patch) -> None:
    """Every throttle counts as one of the start."""

    def start(state: dict[str, Any]) -> None:
        state["Choices"] = [
            {"Condition": "{% $start_again %}", "Next": "RunGlueJob"},
            *state["Choices"],
        ]

    change_state(patch, "IsGlueRunFound", start)


def an_error_of_the_poll_counts_as_no_run(patch: Patch) -> None:
    def trust(state: dict[str, Any]) -> None:
        trusted = state["Choices"][2]
        trusted["Condition"] = trusted["Condition"].replace("[", "['Glue.InvalidInputException', ")

    change_state(patch, "IsGlueRunKnownToHaveEnded", trust)


def a_search_of_one_page(patch: Patch) -> None:
    """Other users' runs fill the page, and the own run is on the next one."""

    change_state(patch, "FindGlueRun", lambda state: state["Assign"].update(next_page=""))


def f4_redriven_without_a_slot(patch: Patch) -> None:
    change_state(patch, "RunGlueJob", lambda state: state["Arguments"].update(JobName="{% $target %}"))


def no_wake(patch: Patch) -> None:
    change_state(patch, "IsRequestWaiting", lambda state: state.update(Choices=[]))


def no_check_after_hiding(patch: Patch) -> None:
    """A wake between registration and hide is undone by the hide."""
    patch.setattr(Slots, "can_proceed", lambda *_: False)


def registered_although_a_slot_is_free(patch: Patch) -> None:
    """The waiting request registers after the last release, so no release wakes it."""
    patch.setattr(slots, "NO_ROOM", f"({slots.NO_ROOM} OR NOT {slots.NO_ROOM})")
    patch.setattr(Slots, "can_proceed", lambda *_: False)


def cancelled_requests_are_admitted(patch: Patch) -> None:
    condition = slots.RESERVE_CONDITION.replace("attribute_not_exists(cancelled.#me) AND ", "")
    patch.setattr(slots, "RESERVE_CONDITION", condition)


def holders_are_cancelled(patch: Patch) -> None:
    patch.setattr(processes, "CANCEL_CONDITION", "size(cancelled) < :most")


def no_wake_of_a_cancelled_request(patch: Patch) -> None:
    def cancel(self: Operations, *request: Any) -> str:
        return self.processes.cancellations.add(*request)[0]

    patch.setattr(Operations, "cancel_request", cancel)


def no_check_for_a_cancellation_after_hiding(patch: Patch) -> None:
    def can_proceed(self: Slots, candidate: Candidate) -> bool:
        seen = self.read(candidate.process)
        return seen is not None and seen.fits(1)

    patch.setattr(Slots, "can_proceed", can_proceed)


def executions_are_compared_by_name_only(patch: Patch) -> None:
    """A second message with the id of another request cancels that request's reservation."""
    patch.setattr(Workflow, "_existing_execution", lambda *_: NameTaken(is_open=False))


def no_check_for_the_process_after_hiding(patch: Patch) -> None:
    def can_proceed(self: Slots, candidate: Candidate) -> bool:
        seen = self.read(candidate.process)
        return seen is not None and (seen.fits(1) or candidate.execution in seen.cancelled)

    patch.setattr(Slots, "can_proceed", can_proceed)


def a_cancellation_ends_with_its_dead_letter(patch: Patch) -> None:
    """The message may be delivered again, after a starter died or to a second starter."""
    dead_letter = Starter._dead_letter

    def forgetful(self: Starter, delivery: Delivery, code: str, reason: str) -> Any:
        outcome = dead_letter(self, delivery, code, reason)
        if code == "Cancelled":
            request = parse_request(delivery)
            noted = processes.Cancellations(self.slots._table.dynamodb, self.slots._table.name)
            seen = self.slots.read(request.process)
            assert seen is not None
            for name, note in seen.cancelled.items():
                noted.drop(request.process, name, note)
        return outcome

    patch.setattr(Starter, "_dead_letter", forgetful)


REPLACED = Plan(("a",), limits=(0,), replacements=1, starters=1, janitor_runs=0, lax=True)
CANCELLED = Plan(("a",), limits=(0,), cancels=("a",), janitor_runs=0, lax=True)


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (
            f6_not_equal_instead_of_less,
            Plan(("a", "b", "c"), limit=2, limits=(1,), starters=1, janitor_runs=0, event_steps=False),
            0,
            "S1",
        ),
        (f13_no_confirm, Plan(("a", "b"), janitor_runs=0), 1, "S1b"),
        (f5_released_without_condition, Plan(("a", "b"), janitor_runs=0), 1, "S2"),
        (f1_cancelled_after_an_unanswered_start, Plan(("a",), janitor_runs=0), 1, "S1b"),
        (f2_freed_without_a_check_of_glue, Plan(("a",), janitor_runs=0), 1, "S1b"),
        (released_at_a_task_timeout, Plan(("a",), janitor_runs=0), 1, "S1b"),
        (started_again_after_a_lost_answer, Plan(("a",), janitor_runs=0), 1, "S1b"),
        (started_again_after_a_throttled_poll, Plan(("a",), janitor_runs=0), 1, "S7"),
        (an_error_of_the_poll_counts_as_no_run, Plan(("a",), janitor_runs=0), 1, "S1b"),
        (a_search_of_one_page, Plan(("a",), janitor_runs=0, page=1, others=1), 1, "S1b"),
        (f4_redriven_without_a_slot, Plan(("a",), janitor_runs=0, janitor_ahead=False), 2, "S1b"),
        (no_wake, Plan(("a", "b"), janitor_runs=0), 0, "S6"),
        (no_check_after_hiding, Plan(("a", "b"), janitor_runs=0, lax=True), 0, "S6"),
        (registered_although_a_slot_is_free, Plan(("a", "b"), janitor_runs=0), 0, "S6"),
        (cancelled_requests_are_admitted, CANCELLED, 0, "S3"),
        (holders_are_cancelled, CANCELLED, 0, "S3"),
        (no_wake_of_a_cancelled_request, CANCELLED, 0, "S6"),
        (no_check_for_a_cancellation_after_hiding, CANCELLED, 0, "S6"),
        (a_cancellation_ends_with_its_dead_letter, CANCELLED, 0, "S6"),
        (executions_are_compared_by_name_only, Plan(("a", "a*"), janitor_runs=0), 0, "S5"),
        (no_check_for_the_process_after_hiding, REPLACED, 0, "S6"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_small_world_breaks(
    remove: Callable[[Patch], None], plan: Plan, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: SlotsWorld(plan, timeless=True), faults)
    assert name == broken, history
    assert history.splitlines()[-1].startswith(f"broken: {broken}")


def f16_no_janitor(patch: Patch) -> None:
    patch.setattr(Janitor, "run", lambda _: RunReport())
    patch.setattr(ClosedExecutions, "handle", lambda *_: None)


def only_the_first_process(patch: Patch) -> None:
    every = Processes.all
    patch.setattr(Processes, "all", lambda self: islice(every(self), 1))


def aborted_requests_are_not_kept(patch: Patch) -> None:
    patch.setattr("slotkeeper.slots.queues.FailedRequestQueue.keep", lambda *_: None)


def unkept_requests_are_forgotten(patch: Patch) -> None:
    """A janitor run counts every execution that it listed as settled, so that later runs do not list it again."""

    def hasty(self: Settlement, begun: float) -> None:
        self.memory.unsettled.clear()
        self.memory.settled_by = begun - self.grace

    patch.setattr(Settlement, "note_settled", hasty)
    patch.setattr(settlement, "_LIST_LAG_SECONDS", 0)


def no_backoff_after_an_error(patch: Patch) -> None:
    patch.setattr(Starter, "_defer", lambda *_: Deferred(slots_world.PROCESS, "as without"))


@pytest.mark.parametrize(
    ("remove", "broken"),
    [
        (no_backoff_after_an_error, ("S6",)),
        (f16_no_janitor, ("S4", "END")),
        (only_the_first_process, ("S4", "S6")),
        (aborted_requests_are_not_kept, ("S3",)),
        (f2_freed_without_a_check_of_glue, ("S1b", "S4")),
        (f13_no_confirm, ("S1b",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_random_schedule_breaks(
    remove: Callable[[Patch], None], broken: tuple[str, ...], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, seed = first_broken(slots_world.random_world, range(3000, 5000))
    assert name in broken, f"seed {seed}"


def test_a_request_that_a_janitor_run_could_not_keep_is_kept_by_a_later_run(monkeypatch: Patch) -> None:
    def random_world(random: Random) -> SlotsWorld:
        return slots_world.random_world(random, aim="deaths", events_lost=True, containers=1)

    assert first_broken(random_world, range(100)) == ("", -1)
    unkept_requests_are_forgotten(monkeypatch)
    small_worlds.forget()
    assert first_broken(random_world, range(100))[0] in ("S3", "END")


def freed_half_an_hour_late(patch: Patch) -> None:
    """A holder counts as dead half an hour later than it should."""
    patch.setattr(janitor, "judge", lambda holder, execution, now, grace: judge(holder, execution, now, grace + 1800))


def freed_one_period_late(patch: Patch) -> None:
    patch.setattr(janitor, "judge", lambda holder, execution, now, grace: judge(holder, execution, now, grace + 60))


def an_event_frees_nothing(patch: Patch) -> None:
    patch.setattr(ClosedExecutions, "_free", lambda *_: None)


def glue_runs_are_not_stopped(patch: Patch) -> None:
    """The janitor waits for a Glue run that outlives its workflow, without stopping it."""
    patch.setattr(GlueRuns, "stop", lambda *_: None)


def no_wake_by_the_janitor(patch: Patch) -> None:
    patch.setattr(Janitor, "_wake_all", lambda *_: [])
    patch.setattr(Janitor, "_wake", lambda *_: None)


@pytest.mark.parametrize(
    ("remove", "broken_property", "least", "given"),
    [
        (freed_half_an_hour_late, "S4", 0.05, {"aim": "deaths"}),
        (an_event_frees_nothing, "S4", 0.05, {"aim": "deaths"}),
        # Without status events, which would free the slot before the janitor's runs.
        (freed_one_period_late, "S4", 0.02, {"events_lost": True, "aim": "deaths"}),
        (glue_runs_are_not_stopped, "S4", 0.02, {"aim": "deaths"}),
        (no_wake_by_the_janitor, "S6", 0.02, {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_exceeded_time_bound_is_detected_in_many_schedules(
    remove: Callable[[Patch], None], broken_property: str, least: float, given: dict[str, Any], monkeypatch: Patch
) -> None:
    def random_world(random: Random) -> SlotsWorld:
        return slots_world.random_world(random, **given)

    remove(monkeypatch)
    assert breaks(random_world, SEEDS, broken_property, times=int(least * len(SEEDS)))
