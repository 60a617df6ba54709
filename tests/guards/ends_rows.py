"""Rows of how work ends: holders whose workflow has died, children, outcomes, publications, redrives."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from slotkeeper.slots import dead_holders, returns, work
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import ChildChecks, DeadHolders
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.endings import Endings
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, JobRunSearch, Work
from slotkeeper_cli.commands import dlq, holder
from tests.guards.edits import code, template
from tests.guards.rows import Row, World, counts_as_done
from tests.guards.slots_rows import SLOTS, A, of
from tests.simulation import slots_world
from tests.simulation.slots_state import Sent
from tests.simulation.world_runs import all_of, replaced, set_to

Patch = pytest.MonkeyPatch
CALLER = Sent("a", caller=True)
child = partial(of, machines=("p",))
LATE: dict[str, Any] = {"aim": "late", "run_seconds": (60,)}
SETTLES: dict[str, Any] = {"settle_seconds": 100, "run_seconds": (60,), "aim": "ends"}
REDRIVEN: dict[str, Any] = {"first_run": 60, "fails": 1, "child_redrives": 1, "run_seconds": (300,)}
PUBLISHES: dict[str, Any] = {"event_steps": True, "aim": "publishing"}


# Holders whose workflow has died ------------------------------------------------------------------------------------


def a_stopping_run_has_ended(patch: Patch) -> None:
    ended = work.ENDED_STATES
    for module in [each for each in sys.modules.values() if getattr(each, "ENDED_STATES", None) is ended]:
        patch.setattr(module, "ENDED_STATES", ended | {"STOPPING"})


def settles_although_the_process_is_malformed(patch: Patch) -> None:
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


HOLDERS = [
    Row(
        "f02-freed-without-a-check-of-glue",
        "The workflow is aborted and its slot freed, while its Glue run lives on.",
        set_to(JobRunSearch, "read_page", lambda self: setattr(self, "_ended", True)),
        World(of(A, aim="ends", run_seconds=(900,)), 1, "S7"),
    ),
    Row(
        "f02-one-check-is-enough",
        "A StartJobRun that was in progress when the workflow was aborted appears only after the first check.",
        code(
            DeadHolders._check_again,
            "self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, self.clock())",
            "self.slots.free(held.process.name, held.name, held.holder.raw)",
        ),
        f"{SLOTS}/test_janitor_runs.py::test_f2_one_check_is_not_enough",
    ),
    Row(
        "f02-two-checks-without-a-gap",
        "The second check follows the first immediately. Work that appears a little later is missed.",
        set_to(slots_world, "CHECK_GAP", 0),
        World(child(A, **LATE), 2, "S7"),
    ),
    Row(
        "f02-stopping-runs-count-as-ended",
        "A STOPPING run is treated as ended, although it works until it is STOPPED.",
        a_stopping_run_has_ended,
        "tests/workflow/test_definition.py::test_the_final_states_of_a_run_are_those_of_the_layer",
    ),
    Row(
        "f02-an-open-child-is-not-stopped",
        "The workflow is aborted, and its child execution runs on.",
        set_to(Children, "stop", lambda *_: None),
        World(child(A, run_seconds=(900,), aim="deaths", first_run=60), 1, "S4"),
    ),
    Row(
        "f02-no-settle-time",
        "The slot is freed as soon as the child is aborted, although the work that it started continues (S1b).",
        set_to(Work, "settles_at", lambda *_: 0),
        World(child(A, **SETTLES), 2, "S1b"),
    ),
    Row(
        "f02-a-child-of-a-running-workflow-is-adopted",
        "The child is adopted while its workflow runs, which then releases the adopted slot.",
        code(ChildChecks._adopt, "execution is not None and not execution.is_closed", "False"),
        f"{SLOTS}/test_children.py::test_a_child_whose_workflow_runs_is_not_adopted",
    ),
    Row(
        "s1b-a-redriven-child-is-not-adopted",
        "An operator redrives a child, which runs without a slot.",
        set_to(ChildChecks, "adopt_redriven", lambda *_: None),
        World(child(A, **REDRIVEN), 0, "S1b"),
    ),
    Row(
        "s1b-the-event-checks-right-after-the-close",
        "A check right after the abort counts, although a StartJobRun may land after it (S1b).",
        code(ClosedExecutions._free, "execution.stopped_at + gap - found.checked_at", "0"),
        f"{SLOTS}/test_closed_executions.py::test_s1b_a_check_within_a_gap_after_the_close_does_not_count",
        also=("F2",),
    ),
    Row(
        "s1b-a-check-from-before-a-redrive",
        "An execution is checked once, redriven and aborted again; the old check counts (S1b).",
        code(
            DeadHolders._check_again,
            "quiet_since is None or (held.closed_at is not None and quiet_since < held.closed_at)",
            "quiet_since is None",
        ),
        f"{SLOTS}/test_closed_executions.py::test_s1b_a_check_before_a_redrive_does_not_count",
        also=("F2", "F4"),
    ),
    Row(
        "s1b-a-search-that-failed-has-ended",
        "A page of runs could not be read; the search is continued, and proves that no run is alive (S1b).",
        code(JobRunSearch.read_page, "self._failed = True", "self._failed = False"),
        f"{SLOTS}/test_glue_checks.py::test_s1b_a_failed_search_covers_nothing",
        also=("F2",),
    ),
    Row(
        "f09-a-reservation-expires",
        "A reservation is freed by its age, although its workflow may still confirm it.",
        code(dead_holders.judge, "execution is not None and execution.is_closed and age >= grace", "age >= grace"),
        f"{SLOTS}/test_janitor_runs.py::test_f9_age_alone_frees_no_slot",
    ),
    Row(
        "f16-an-aborted-request-is-lost",
        "A workflow that was aborted has recorded no outcome, and neither does the handler (S3).",
        set_to(Settlement, "_record", lambda *_: None),
        World(of(A, aim="ends"), 1, "S3 S4 S7"),
        also=("F23",),
    ),
    Row(
        "f16-freed-unsettled",
        "The slot is freed before the outcome is recorded. A dispatch starts the request again.",
        code(
            DeadHolders.conclude,
            "return self._free(held, report) if settle() else Verdict.NOT_SETTLED",
            "freed = self._free(held, report)\nreturn freed if settle() else Verdict.NOT_SETTLED",
        ),
        f"{SLOTS}/test_closed_executions.py::test_the_outcome_is_recorded_before_the_slot_is_free",
        also=("F23",),
    ),
    Row(
        "s7-a-succeeded-run-is-recorded-as-a-failure",
        "The workflow was aborted after its run succeeded, and a redrive does the work twice.",
        set_to(Work, "has_succeeded", False),
        World(of(CALLER, aim="ends"), 1, "S7"),
    ),
    Row(
        "s7-a-reservation-is-freed-unsettled",
        "A run frees a reservation before the outcome of its request is recorded: a dispatch may start it again.",
        code(
            Janitor._judge_all,
            "self._settle(held, None, report) and self._dead.cancel(held, report)",
            "self._dead.cancel(held, report)",
        ),
        f"{SLOTS}/test_janitor_runs.py::test_the_reservation_of_a_closed_execution_is_freed_after_its_request_is_settled",
    ),
    Row(
        "f18-a-start-without-a-slot-is-left-to-its-event",
        "The status event of an execution without a slot is lost, and its request is STARTED forever.",
        code(Janitor._settle_unheld, 'state == "STARTED"', "not state"),
        f"{SLOTS}/test_janitor_runs.py::test_a_started_row_that_cannot_be_settled_keeps_back_no_other",
    ),
    Row(
        "f20-a-pattern-that-never-matches",
        "The event's pattern never matches the events sent (`*Z` for `*Z*` in dontirun/state-machine-semaphore).",
        template(
            "Resources.WorkflowClosedRule.Properties.EventPattern.detail-type",
            ["Step Functions Execution Status Change"],
            ["Step Functions Execution Status Changed"],
        ),
        "tests/template/test_template.py::test_f20_the_rules_pattern_matches_what_step_functions_sends",
    ),
    Row(
        "s3-the-event-of-a-malformed-process-settles",
        "The item cannot be read, and the request of a live holder is settled as one without a slot.",
        settles_although_the_process_is_malformed,
        World(child(CALLER, damages=1), 1, "S3 S4 S7"),
    ),
    Row(
        "s1c-holder-release-frees-a-live-lease",
        "holder release frees the slot of a lease whose code still runs, without --force (S1c).",
        code(holder._lease_alive, "holder.has_expired(now)", "True"),
        "tests/command/test_holder_command.py::test_the_slot_of_a_holder_that_may_use_it_is_released_with_force_only",
    ),
    Row(
        "s1b-holder-release-frees-a-running-child",
        "holder release frees the slot of a workflow that was stopped while its child execution still runs (S1b).",
        code(
            holder._work_alive,
            """if found.running:
                checked.append(f"its {noun} has not ended: {', '.join(found.running)}")
                return f"its {noun} {', '.join(found.running)} has not ended"
            """,
        ),
        "tests/command/test_state_machine_targets.py::"
        "test_release_is_refused_while_the_child_runs_and_within_its_settle_time",
    ),
]

# Publications -------------------------------------------------------------------------------------------------------


def marks_before_the_answer(patch: Patch) -> None:
    answer = Endings._answer

    def hasty(self: Endings, row: Any, reason: str) -> Any:
        self._mark(row, reason)
        return answer(self, row, reason)

    patch.setattr(Endings, "_answer", hasty)


def answers_before_the_outcome(patch: Patch) -> None:
    free = ClosedExecutions._free

    def hasty(self: ClosedExecutions, *given: Any) -> int | None:
        self.endings._callers.fail(CALLER.token, "Aborted", "")
        return free(self, *given)

    patch.setattr(ClosedExecutions, "_free", hasty)


def repeats_nothing(self: Janitor, _processes: Any, report: Any, _until: float) -> None:
    report.counts["RequestsUnpublished"] = 0


ENDS = [
    Row(
        "s9-marked-before-the-answer",
        "An end is marked as published first. A sender that dies then leaves it unpublished forever.",
        marks_before_the_answer,
        World(of(CALLER), 0, "S9"),
    ),
    Row(
        "s9-answered-before-the-outcome",
        "An abort answers its caller before the proof that the work has ended.",
        answers_before_the_outcome,
        World(of(CALLER, aim="ends"), 1, "S9"),
    ),
    Row(
        "s9-marked-without-an-answer",
        "Step Functions throttles an answer, which counts as given: the caller waits until it times out.",
        counts_as_done(Endings, "_answered"),
        World(of(CALLER, **PUBLISHES), 1, "S9"),
    ),
    Row(
        "f18-ends-are-published-by-their-events-alone",
        "The message of an end is lost, and its caller waits until it times out.",
        set_to(Janitor, "_publish_ends", repeats_nothing),
        World(of(CALLER, **PUBLISHES), 1, "S4"),
    ),
    Row(
        "s9-an-end-without-a-start-is-not-published",
        "A request is refused, and its caller waits.",
        set_to(EndingQueue, "publish", lambda *_: None),
        World(of(CALLER, rejects=("a",)), 0, "S4"),
    ),
]

# Redrives and returns -----------------------------------------------------------------------------------------------


def redrives_twice(patch: Patch) -> None:
    replaced(returns, "REDRIVEN_CONDITION", "#state = :seen", "(#state = :seen OR #state <> :seen)")(patch)
    replaced(returns, "REDRIVEN_CONDITION", " AND attribute_exists(body)")(patch)
    added = returns.Requeues._added

    def overwrite(self: returns.Requeues, row: Any) -> Any:
        part = added(self, row)
        del part["Put"]["ConditionExpression"]
        return part

    patch.setattr(returns.Requeues, "_added", overwrite)


def forgets_the_caller(patch: Patch) -> None:
    add = returns._next_attempt

    def forget(*given: Any, **more: Any) -> Any:
        row = add(*given, **more)
        row.pop("task_token", None)
        return row

    patch.setattr(returns, "_next_attempt", forget)


REDRIVES = [
    Row(
        "s9-redriven-before-it-is-published",
        "A failure is redriven while its caller still has to get an answer. The check of the row and the condition "
        "each prevent it.",
        all_of(
            replaced(returns, "REDRIVEN_CONDITION", "attribute_not_exists(#open)", "#open <> :seen"),
            set_to(returns, "_kept_because", lambda row: "" if "body" in row else "no content"),
        ),
        World(of(CALLER, fails=1, again=("a",)), 0, "S9"),
    ),
    Row(
        "s9-queued-again-before-it-is-published",
        "A redriven execution has found no slot, and its request runs again while its caller has no answer.",
        code(returns._kept_because, '"open" in row', '"open" in row and row["state"]["S"] != "FAILED"'),
        f"{SLOTS}/test_returns.py::test_while_a_failure_is_not_published_its_request_stays",
    ),
    Row(
        "s3-redriven-twice",
        "Two operators redrive a failure. Its state, its body and the next attempt's row each prevent it.",
        redrives_twice,
        World(of(A, fails=1, again=("a", "a"), rests=True), 0, "S3"),
    ),
    Row(
        "s9-returned-without-its-caller",
        "A request that has lost its slot is queued again, and its caller gets no answer.",
        forgets_the_caller,
        World(of(CALLER, frees=1), 0, "S9"),
    ),
    Row(
        "f25-a-dead-letter-deleted-before-it-is-sent",
        "A redrive deletes the dead-letter message before it sends the request. If it dies in between, it is lost.",
        code(
            dlq.redrive,
            "send(context.stack, message.body, planned)\nreader.delete(message)",
            "reader.delete(message)\nsend(context.stack, message.body, planned)",
        ),
        "tests/command/test_dlq_command.py::test_f25_a_message_that_a_refused_call_has_left_is_redriven_again",
    ),
]

ROWS = HOLDERS + ENDS + REDRIVES
