"""The workflow's definition: its graph, its retries, and the same conditions as the layer."""

from __future__ import annotations

import json
import re

import pytest
from botocore.session import Session

from slotkeeper.slots.executions import SLOT_LOST
from slotkeeper.slots.request import MAX_BODY_BYTES
from slotkeeper.slots.settlement import CHILD_TOO_LARGE, WITH_FAILURE
from slotkeeper.slots.work import ENDED_STATES
from tests.workflow.case import Case, of_input
from tests.workflow.choice_cases import CHOICES
from tests.workflow.definition import ENDS, FILE, definition, states
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.paths import MACHINE

TASKS = [name for name, state in states().items() if state["Type"] == "Task"]
KNOWN_FIELDS = {
    "Task": {"Resource", "Arguments", "Assign", "TimeoutSeconds", "Retry", "Catch", "Next"},
    "Choice": {"Choices", "Default"},
    "Wait": {"Seconds", "Assign", "Next"},
    "Pass": {"Assign", "Next"},
    "Succeed": {"Output"},
    "Fail": {"Error", "Cause"},
}
COMMON_FIELDS = {"Type", "Comment"}


@pytest.mark.parametrize("name", states())
def test_every_state_has_the_fields_of_its_type_and_a_next_state(name: str) -> None:
    state = states()[name]
    assert set(state) <= KNOWN_FIELDS[state["Type"]] | COMMON_FIELDS
    assert (state["Type"] in ENDS) != bool({"Next", "Default"} & set(state))
    if state["Type"] == "Choice":
        # No Assign in a Choice: the guide's pages contradict each other on when it applies.
        assert "Default" in state
        assert all(rule.keys() == {"Condition", "Next"} for rule in state["Choices"])


def test_data_passes_between_states_in_variables_alone() -> None:
    """So no state depends on its input, the result of the state before."""
    assert "$states.input" not in FILE.read_text()


def test_an_assign_reads_no_variable_that_it_assigns_to_another() -> None:
    """Step Functions evaluates an Assign with the values from the state's entry; other interpreters, one by one."""
    for state in states().values():
        for assign in (part["Assign"] for part in [state, *state.get("Catch", [])] if "Assign" in part):
            for name, template in assign.items():
                others = assign.keys() - {name}
                assert not others & set(re.findall(r"\$(\w+)", json.dumps(template))), assign


def test_a_variable_without_a_value_fails_its_state_even_in_a_condition() -> None:
    """Negative control: on every path, and in every simulated schedule, each variable has a value where it is read."""
    with pytest.raises(StateFailed, match="run_state"):
        STATES["ChooseOutcome"].choose({}, {"outcome": "RETURNED"})


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_timeout_and_catches_every_error(name: str) -> None:
    """After an uncaught error, the janitor must free the slot and record the end."""
    state = states()[name]
    assert "TimeoutSeconds" in state
    assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]


@pytest.mark.parametrize("name", TASKS)
def test_every_retry_backs_off_with_jitter_to_a_cap(name: str) -> None:
    for retrier in states()[name].get("Retry", []):
        if retrier["MaxAttempts"]:
            assert retrier["JitterStrategy"] == "FULL"
            assert retrier["MaxDelaySeconds"] >= retrier["IntervalSeconds"]


WRITES = ("ConfirmSlot", "RecordOutcome", "ReleaseSlot")


@pytest.mark.parametrize("name", WRITES)
def test_a_condition_that_failed_is_not_retried(name: str) -> None:
    assert STATES[name].retry_after("DynamoDB.ConditionalCheckFailedException", {}) is None


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_met_a_transaction_is_retried_within_a_second_each_time(name: str) -> None:
    """A transaction takes milliseconds. The other errors of a write are retried for a minute, ever less often."""
    retried: dict[int, int] = {}
    waits = [STATES[name].retry_after("DynamoDB.TransactionConflictException", retried) for _ in range(20)]
    assert waits == [1] * 20  # at most, because of the jitter
    assert STATES[name].retry_after("States.Timeout", retried) is not None


def test_the_layer_has_the_errors_of_the_workflow_that_it_reads() -> None:
    errors = {state["Error"] for state in states().values() if state["Type"] == "Fail"}
    assert errors == {CHILD_TOO_LARGE, SLOT_LOST, *WITH_FAILURE}


def test_the_workflow_neither_answers_nor_publishes_nor_notifies_nor_counts() -> None:
    """One function publishes each end, from the request's row (endings.py)."""
    others = re.compile(r":(events|sns|cloudwatch):|sendTask(Success|Failure)")
    assert not [name for name in TASKS if others.search(states()[name]["Resource"])]
    assert [name for name in TASKS if ":sqs:" in states()[name]["Resource"]] == ["Ring"]


def test_the_final_states_of_a_run_are_those_of_the_layer() -> None:
    read, known = states()["ReadGlueRun"]["Assign"], states()["IsGlueRunKnownToHaveEnded"]["Choices"]
    for text in (read["run_has_ended"], known[1]["Condition"]):
        assert set(re.findall(r"SUCCEEDED|FAILED|STOPPED|TIMEOUT|ERROR|EXPIRED", text)) == ENDED_STATES


def test_no_expression_has_a_regular_expression() -> None:
    """The Step Functions guide does not state that its JSONata supports them. A Choice or a Catch that fails ends the
    workflow with its slot taken.
    """
    assert not [name for name, state in states().items() if re.search(r"[(,] */", json.dumps(state))]


def test_a_queued_run_counts_as_alive() -> None:
    every_state = Session().get_service_model("glue").shape_for("JobRunState").enum
    assert set(every_state) - ENDED_STATES == {"STARTING", "RUNNING", "STOPPING", "WAITING"}


def test_glue_ends_a_run_before_the_tasks_timeout() -> None:
    task = states()["RunGlueJob"]
    assert task["Arguments"]["Timeout"] == "{% $timeout_minutes %}"
    assert task["TimeoutSeconds"] == "{% $timeout_minutes * 60 + 900 %}"
    longest_glue_minutes = 10079
    assert longest_glue_minutes * 60 + 900 < definition()["TimeoutSeconds"]


@pytest.mark.parametrize("case", CHOICES, ids=[f"{number} {case.path}" for number, case in enumerate(CHOICES)])
def test_a_choice_leads_to_the_state_of_its_table(case: Case) -> None:
    assert STATES[case.path].choose(case.states["context"], case.variables) == case.expected


def test_an_error_shows_that_no_run_was_started_only_if_the_poll_cannot_return_it() -> None:
    """`.sync` starts with StartJobRun and polls with GetJobRun; botocore's model lists the errors of each.

    StartJobRun has no client token: a retry after a lost response would be a second run in one slot.
    """
    model = Session().get_service_model("glue")
    start, poll = (
        {shape.name for shape in model.operation_model(name).error_shapes} for name in ("StartJobRun", "GetJobRun")
    )
    trusted = re.findall(r"'Glue\.(\w+)'", states()["IsGlueRunKnownToHaveEnded"]["Choices"][2]["Condition"])
    trusted.remove("JobRunNotSucceeded")  # RunGlueJob's own, after it has read the run's final state
    retried = [name.removeprefix("Glue.") for name in states()["RunGlueJob"]["Retry"][0]["ErrorEquals"]]
    assert set(trusted) == set(retried) <= start - poll


def test_a_page_of_runs_with_the_largest_arguments_is_below_the_payload_limit() -> None:
    """Step Functions guide, "Service quotas": 256 KiB; States.ALL may not catch the error of more."""
    asked = STATES["FindGlueRun"].value("Arguments", {}, {"target": "job", "next_page": ""})
    other_fields = 16 * 1024
    assert asked["MaxResults"] * (MAX_BODY_BYTES + other_fields) < 256 * 1024


@pytest.mark.parametrize(("state", "target"), [("RunGlueJob", "job"), ("RunStateMachine", MACHINE)])
def test_f4_a_redriven_execution_cannot_name_its_work(state: str, target: str) -> None:
    known = {"target": target, "timeout_minutes": 60}
    assert target in STATES[state].value("Arguments", of_input({}), known).values()
    with pytest.raises(StateFailed, match="a redriven execution holds no slot"):
        STATES[state].value("Arguments", of_input({}, redrives=1), known)


def test_a_child_is_read_again_after_its_settle_time() -> None:
    """An operator may have redriven it meanwhile. If it was stopped again, the time begins again."""
    assert states()["SettleChild"]["Next"] == "ReadChild"


def test_the_error_names_are_those_of_the_operation_with_the_suffix_exception() -> None:
    """Step Functions guide, "Learning to use AWS service SDK integrations in Step Functions": the name in the API
    Reference, such as TaskTimedOut, has the suffix Exception in the integration even if it has none there.
    """
    model = Session().get_service_model("stepfunctions").operation_model("DescribeExecution")
    rules = states()["ReadChild"]["Retry"] + states()["ReadChild"]["Catch"]
    names = {error for rule in rules for error in rule["ErrorEquals"] if error.startswith("Sfn.")}
    assert names == {"Sfn.ExecutionDoesNotExistException"}
    assert names <= {f"Sfn.{shape.name.removesuffix('Exception')}Exception" for shape in model.error_shapes}


def test_a_start_is_retried_only_after_a_refusal_or_a_throttle() -> None:
    """StartExecution with the name and the input of an open execution returns that one, so a retry starts no second."""
    model = Session().get_service_model("stepfunctions")
    start, poll = (
        {shape.name for shape in model.operation_model(name).error_shapes}
        for name in ("StartExecution", "DescribeExecution")
    )
    refusals, throttles = states()["RunStateMachine"]["Retry"]
    refused = {name.removeprefix("StepFunctions.").removesuffix("Exception") for name in refusals["ErrorEquals"]}
    assert refused <= start - poll
    # The guide, "Start workflow executions from a task state", retries the name without the suffix. The recorded errors
    # of this integration have it.
    assert refusals["ErrorEquals"] == [f"StepFunctions.{name}{end}" for name in refused for end in ("", "Exception")]
    (as_glue,) = states()["RunGlueJob"]["Retry"]
    assert {**refusals, "ErrorEquals": []} == {**as_glue, "ErrorEquals": []}
    assert throttles["ErrorEquals"] == ["StepFunctions.AWSStepFunctionsException", "StepFunctions.ThrottlingException"]
