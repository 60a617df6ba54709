"""Rows of the workflow, statemachines/slot_workflow.asl.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import fastjsonschema
import pytest

from slotkeeper.slots import request
from tests.guards.edits import state, text
from tests.guards.ends_rows import CALLER, LATE, SETTLES, child
from tests.guards.rows import Row, World
from tests.guards.slots_rows import SLOTS, A, B, of
from tests.simulation.world_runs import all_of

Patch = pytest.MonkeyPatch
State = dict[str, Any]
DEFINITION, PATHS = (f"tests/workflow/test_{name}.py" for name in ("definition", "paths"))
CHOICES = f"{DEFINITION}::test_a_choice_leads_to_the_state_of_its_table"
RELEASES = f"{PATHS}::test_a_slot_stays_taken_only_if_its_outcome_is_not_recorded"
DENIED: dict[str, Any] = {"aim": "denials", "run_seconds": (60,)}
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


def sets(**fields: Any) -> Callable[[State], None]:
    """Other fields of the state."""
    return lambda fields_of: fields_of.update(fields)


def passes(**fields: Any) -> Callable[[State], None]:
    """The state does nothing."""

    def change(fields_of: State) -> None:
        following = fields_of["Next"]
        fields_of.clear()
        fields_of.update(Type="Pass", Next=following, **fields)

    return change


def choice(following: str, old: str, new: str) -> Callable[[State], None]:
    """Another condition of the choices that lead to `following` and contain `old`."""

    def change(fields: State) -> None:
        for each in fields["Choices"]:
            if each["Next"] == following and old in each["Condition"]:
                each["Condition"] = each["Condition"].replace(old, new)

    return change


def leads(condition: str, following: str) -> Callable[[State], None]:
    """The choice with this condition leads to another state."""

    def change(fields: State) -> None:
        for each in fields["Choices"]:
            if each["Condition"] == "{% " + condition + " %}":
                each["Next"] = following

    return change


def catches(error: str, following: str) -> Callable[[State], None]:
    """The catcher of this error leads to another state."""

    def change(fields: State) -> None:
        for each in fields["Catch"]:
            if error in each["ErrorEquals"]:
                each["Next"] = following

    return change


def gives_up_at_a_conflict(fields: State) -> None:
    fields["Retry"] = [each for each in fields["Retry"] if "TransactionConflict" not in str(each["ErrorEquals"])]
    fields["Retry"][0]["ErrorEquals"].append("DynamoDB.TransactionConflictException")


def any_argument(patch: Patch) -> None:
    schema = request.SCHEMA_FILE.read_text()
    assert "|slotkeeper-.*" in schema
    lax = fastjsonschema.compile(json.loads(schema.replace("|slotkeeper-.*", "")))
    patch.setattr(request, "_validator", lambda: lax)


GLUE = [
    Row(
        "f03-no-retry-in-place",
        "Glue counts a run that has SUCCEEDED for 5 to 10 s more, and the next one fails its request (airflow #43688).",
        state("RunGlueJob", lambda fields: fields["Retry"][0]["ErrorEquals"].pop(0)),
        f"{DEFINITION}::test_an_error_shows_that_no_run_was_started_only_if_the_poll_cannot_return_it",
    ),
    Row(
        "f04-no-redrive-guard",
        "A redriven execution skips the steps that succeeded, so never takes a slot again, and runs Glue without one.",
        state("RunGlueJob", lambda fields: fields["Arguments"].update(JobName="{% $target %}")),
        World(of(A, aim="redrives"), 2, "S1b S3 S7"),
    ),
    Row(
        "f13-no-confirm",
        "The workflow runs Glue although the janitor may have freed its reservation.",
        state("ConfirmSlot", passes(Assign=CONFIRMED)),
        World(of(A, frees=1), 0, "S1b S3"),
    ),
    Row(
        "f13-run-although-the-slot-is-lost",
        "The confirm finds no reservation, and the workflow continues to Glue.",
        state("ConfirmSlot", catches("DynamoDB.ConditionalCheckFailedException", "ChooseWork")),
        f"{PATHS}::test_a_lost_reservation_never_reaches_glue",
    ),
    Row(
        "f23-a-stopped-run-is-a-success",
        "startJobRun.sync also returns for a STOPPED run, and every return is treated as a success.",
        state("RunGlueJob", lambda fields: fields["Assign"].update(run_state="SUCCEEDED")),
        f"{PATHS}::test_a_success_is_only_of_a_run_that_succeeded",
    ),
    Row(
        "s1b-a-lost-answer-releases-the-slot",
        "StartJobRun's answer is lost, its run is alive, and its slot is granted to the next request (S1b).",
        state("IsGlueRunKnownToHaveEnded", sets(Default="RecordOutcome")),
        World(of(A, aim="polls"), 1, "S7"),
        also=("F2",),
    ),
    Row(
        "s1b-one-check-is-enough",
        "One search that finds no run is enough, and the run whose start was under way shows after it (S1b).",
        state("IsGlueRunFound", choice("WaitForGlueRun", "$searches < 2", "$searches < 1")),
        CHOICES,
        also=("F2",),
    ),
    Row(
        "s1b-an-error-that-the-poll-has-too-is-trusted",
        "GetJobRun refuses a poll, which is treated as StartJobRun's. The run is alive, and its slot is granted (S1b).",
        state(
            "IsGlueRunKnownToHaveEnded",
            text("in ['Glue.Concurrent", "in ['Glue.InvalidInputException', 'Glue.Concurrent"),
        ),
        World(of(A, aim="polls"), 1, "S7"),
        also=("F2",),
    ),
    Row(
        "s1b-a-marker-that-requests-can-set",
        "A request's own argument replaces the one that names its execution, so the run is not found (S1b).",
        any_argument,
        f"{SLOTS}/test_requests.py::test_an_argument_that_glue_or_slotkeeper_acts_on_is_refused_by_name",
        also=("F2",),
    ),
    Row(
        "s7-started-again-after-a-lost-answer",
        "StartJobRun has no client token, and its repeat is a second run.",
        state("RunGlueJob", lambda fields: fields["Retry"][0]["ErrorEquals"].append("Glue.SdkClientException")),
        World(of(A), 1, "S1b S7"),
    ),
    Row(
        "s7-a-throttled-poll-starts-again",
        "A throttled poll is treated as a throttled start, and a run that has succeeded is started again (S7).",
        state(
            "IsGlueRunFound",
            lambda fields: fields["Choices"].insert(0, {"Condition": "{% $start_again %}", "Next": "RunGlueJob"}),
        ),
        World(of(A, aim="polls"), 1, "S7"),
    ),
    Row(
        "s7-a-missing-run-is-started-again",
        "The run was found, and then its job was deleted and made again: its work is started once more (S7).",
        state("ReadGlueRun", lambda fields: [each.get("Assign", {}).pop("start_again", 0) for each in fields["Catch"]]),
        f"{PATHS}::test_no_run_is_started_after_one_was_found",
    ),
    Row(
        "s7-a-refused-poll-stops-the-run",
        "Glue refuses a poll, and the workflow stops the healthy run that it has asked about.",
        state("RunGlueJob", lambda fields: fields["Catch"][-1]["Assign"].update(must_stop=True)),
        f"{PATHS}::test_a_run_is_stopped_only_after_a_timeout_or_in_a_redriven_execution",
    ),
    Row(
        "s7-a-search-of-one-page",
        "The newest runs of a busy job are those of others, and the search ends before its own (S7).",
        state("FindGlueRun", lambda fields: fields["Assign"].update(next_page="")),
        World(of(A, page=1, others=1), 1, "S1b S7"),
    ),
    Row(
        "s10-a-job-that-no-role-may-touch",
        "The workflow starts work that its role does not permit, so that no role can find out whether it runs.",
        state(
            "ChooseWork",
            lambda fields: fields.update(
                Choices=[each for each in fields["Choices"] if each["Next"] != "TargetNotPermitted"]
            ),
        ),
        World(of(A, target="another", **DENIED), 0, "S10"),
    ),
    Row(
        "s7-a-denied-poll-is-a-denied-start",
        "Each denial of Glue counts as one of the start: the slot is released while the run is alive.",
        state("IsGlueRunKnownToHaveEnded", text("glue:StartJobRun ", "glue:")),
        World(of(A, denials=("reads",), **DENIED), 1, "S7"),
    ),
    Row(
        "s4-a-denied-start-is-searched-for",
        "Neither start nor search is permitted, and the slot of work that never began stays.",
        state("IsGlueRunKnownToHaveEnded", text("glue:StartJobRun ", "nothing")),
        World(of(A, denied=("starts", "reads"), **DENIED), 0, "S4"),
    ),
]

CHILDREN = [
    Row(
        "f04-a-redriven-execution-starts-a-child",
        "A redriven execution starts a child although it holds no slot.",
        state("RunStateMachine", lambda fields: fields["Arguments"].update(StateMachineArn="{% $target %}")),
        World(child(A, aim="redrives"), 2, "S1b S3"),
    ),
    Row(
        "s7-one-read-shows-that-a-child-is-absent",
        "The start's answer was lost and the start is in flight. One read finds no child, and the slot is freed.",
        state("HasChildEnded", choice("WaitForChild", "$searches < 3", "$searches < 1")),
        World(child(A, **LATE), 1, "S7"),
    ),
    Row(
        "s3-a-namesake-is-ours",
        "An execution of the same name that was started manually counts as the child: its outcome is taken over.",
        state("HasChildEnded", choice("NameTaken", "$not($is_ours)", "false")),
        World(child(A, namesakes=1), 0, "S3"),
    ),
    Row(
        "s1b-freed-before-it-settles",
        "The slot of an aborted child is granted while the work that it has started runs on.",
        state("HasChildEnded", choice("SettleChild", "$closed_seconds < $settle_seconds", "false")),
        World(child(A, **SETTLES), 1, "S1b"),
    ),
    Row(
        "s9-the-caller-is-not-asked",
        "The work of a caller that has ended is done.",
        state("AskCaller", passes(Assign={"caller": "WAITS"})),
        World(child(CALLER, leaves=1), 0, "S9"),
    ),
    Row(
        "s9-a-throttled-heartbeat-is-an-end",
        "A throttled heartbeat counts as a caller that is gone, and its work is not done.",
        state("AskCaller", lambda fields: fields["Catch"][0]["Assign"].update(caller="GONE")),
        World(child(CALLER), 1, "S9"),
    ),
]

OUTCOME = [
    Row(
        "f23-released-without-an-outcome",
        "A slot is released before the outcome is recorded: the request is lost, or granted a slot again (S7).",
        state("RunGlueJob", sets(Next="ReleaseSlot")),
        World(of(A), 0, "S7"),
    ),
    Row(
        "s7-a-release-although-the-outcome-is-not-recorded",
        "RequestTable cannot be written, and the slot is released without an outcome (S7).",
        state("RecordOutcome", catches("States.ALL", "ReleaseSlot")),
        RELEASES,
    ),
    Row(
        "s7-a-run-that-succeeded-is-recorded-as-a-failure",
        "The task of a run or child has failed, and its work has succeeded, but the request is recorded as failed.",
        state("RecordOutcome", text("$ok ? 'SUCCEEDED' : 'FAILED'", "$ok and $failure = {} ? 'SUCCEEDED' : 'FAILED'")),
        "tests/workflow/test_expressions.py::test_an_expression_has_the_value_of_its_case",
    ),
    Row(
        "s7-an-outcome-while-the-work-may-be-alive",
        "The work may be alive, and its request is recorded as failed. A redrive runs it a second time (S7).",
        state("FindGlueRun", catches("States.ALL", "RecordOutcome")),
        f"{PATHS}::test_no_outcome_is_recorded_and_no_slot_released_while_the_work_may_be_alive",
    ),
    Row(
        "s9-a-success-expires-unpublished",
        "A row expires by its end, before it is published.",
        state("RecordOutcome", text("' REMOVE place, deadline, expires, body", "', expires = :now REMOVE place, body")),
        World(of(CALLER), 0, "S9"),
    ),
    Row(
        "s3-an-outcome-of-a-redriven-execution",
        "A redriven execution has started no work, and records its request as failed (S3).",
        state("IsGlueRunFound", leads("$outcome = 'RETURNED'", "RecordOutcome")),
        f"{PATHS}::test_f4_a_redriven_execution_starts_no_work_and_loses_no_request",
    ),
    Row(
        "s4-no-way-to-the-release",
        "A redriven execution whose run has ended does not release its slot (S4).",
        state("HasGlueRunEnded", leads("$run_has_ended and $outcome = 'RETURNED'", "SlotLost")),
        f"{PATHS}::test_every_path_from_the_confirmed_slot_releases_it_or_ends_with_a_proof_to_come",
        also=("F16",),
    ),
    Row(
        "s4-a-write-that-met-a-transaction-is-given-up",
        "A cancellation writes the process's item in a transaction, and the release that meets it fails (S4).",
        state("ReleaseSlot", gives_up_at_a_conflict),
        f"{DEFINITION}::test_a_write_that_met_a_transaction_is_retried_within_a_second_each_time",
    ),
    Row(
        "s6-no-ring",
        "A slot is released, and no dispatch follows: the next request waits for the janitor (S6).",
        state("Ring", passes()),
        World(of(A, B), 0, "S6"),
    ),
    Row(
        "s6-no-ring-after-a-refused-release",
        "A workflow died between release and ring. The repeated release is refused, and does not ring (S6).",
        state("ReleaseSlot", catches("States.ALL", "ChooseOutcome")),
        RELEASES,
    ),
    Row(
        "s6-rung-before-the-release",
        "A dispatch comes before the slot is free, and none after it.",
        all_of(
            state("RecordOutcome", sets(Next="Ring")),
            state(
                "Ring", lambda fields: (fields.update(Next="ReleaseSlot"), catches("States.ALL", "ReleaseSlot")(fields))
            ),
            state("ReleaseSlot", sets(Next="ChooseOutcome")),
        ),
        World(of(A, B), 0, "S6"),
    ),
]

ROWS = GLUE + CHILDREN + OUTCOME
