"""Guarantees of the workflow for a process that runs a state machine."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.session import Session

from tests.workflow.definition import states
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.walks import MACHINE, SETTLE_SECONDS, Path, all_walks, redriven

DURING_WORK = ("ReadToken", "AskCaller", "RunStateMachine", "ReadChild", "WaitForChild", "StopChild", "SettleChild")
AFTER_RELEASE = ("Ring", "RequestSucceeded", "RequestFailed")


def _walks(redrives: int = 0) -> tuple[Path, ...]:
    return all_walks(redrives, MACHINE) + all_walks(redrives, MACHINE, waits=True)


def _entries(walk: Path, state: str) -> list[dict[str, Any]]:
    """The variables of each entry of a state."""
    return [known for name, known in zip(walk.names, walk.entered, strict=True) if name == state]


@pytest.mark.parametrize("target", ["job", MACHINE])
def test_a_success_takes_eight_transitions(target: str) -> None:
    """Step Functions charges for each transition; docs/costs.md has the price of a request."""
    assert min(len(walk.names) for walk in all_walks(0, target) if walk.status == "SUCCEEDED") == 8


def test_a_state_machine_is_started_once_for_each_execution() -> None:
    """A second StartExecution of the name fails, but the answer of the first one may be lost: ReadChild decides."""
    assert {walk.names.count("RunStateMachine") for walk in _walks()} == {0, 1}


@pytest.mark.parametrize("state", ["RunStateMachine", "ReadChild"])
def test_the_workflow_neither_records_nor_releases_for_a_child_too_large_to_be_read(state: str) -> None:
    """Whether States.ALL catches the error or not (ALL_CATCHES_DATA_LIMIT in interpreter.py)."""
    too_large = StateFailed("States.DataLimitExceeded", "")
    assert STATES[state].retry_after(too_large.error, {}) is None
    assert STATES[state].catch(too_large, {}, {"target": MACHINE}) == ("ChildTooLarge", {"target": MACHINE})
    ends = [walk for walk in _walks() + _walks(redrives=1) if "ChildTooLarge" in walk.names]
    assert ends
    for walk in ends:
        assert not {"RecordOutcome", "ReleaseSlot"} & set(walk.names), walk.names


def test_a_child_that_has_succeeded_is_a_success_after_any_error_of_its_task() -> None:
    for walk in _walks() + _walks(redrives=1):
        seen = _entries(walk, "HasChildEnded")
        succeeded = bool(seen) and seen[-1]["run_state"] == "SUCCEEDED" and seen[-1]["is_ours"]
        if seen and walk.names[-1] not in ("ChildTooLarge", "OutcomeNotRecorded"):
            assert (walk.names[-1] == "RequestSucceeded") == succeeded, walk.names


def test_an_execution_of_the_same_name_that_is_not_ours_is_not_touched_and_its_outcome_not_taken_over() -> None:
    """For example a success of an execution that was started manually."""
    taken = [walk for walk in _walks() + _walks(redrives=1) if "NameTaken" in walk.names]
    assert {_entries(walk, "NameTaken")[0]["run_state"] for walk in taken} == {"SUCCEEDED", "RUNNING"}
    for walk in taken:
        if any(known["is_ours"] and known["run_state"] != "NOT_FOUND" for known in _entries(walk, "HasChildEnded")):
            continue  # a read found our own child first, and no two executions have one name
        assert walk.status == "FAILED"
        assert not {"StopChild", "SettleChild"} & set(walk.names)
        assert walk.variables["failure"]["error"] == "NameTaken"


def test_a_slot_is_kept_while_the_work_of_an_aborted_child_may_outlive_it() -> None:
    settled = 0
    for walk in _walks() + _walks(redrives=1):
        ended = {known["run_state"] for known in _entries(walk, "HasChildEnded") if known["is_ours"]}
        assert "SettleChild" not in walk.names or ended & {"ABORTED", "TIMED_OUT"}, walk.names
        if "SettleChild" in walk.names and "ReleaseSlot" in walk.names:
            settled += 1
            assert walk.names.index("SettleChild") < walk.names.index("ReleaseSlot")
    assert settled
    for known in (known for walk in _walks() for known in _entries(walk, "ReleaseSlot")):
        if known.get("run_state") in {"ABORTED", "TIMED_OUT"} and known["is_ours"]:
            assert known["closed_seconds"] >= SETTLE_SECONDS


def test_a_child_is_read_again_after_its_settle_time() -> None:
    """An operator may have redriven it meanwhile. If it was stopped again, the time begins again."""
    assert states()["SettleChild"]["Next"] == "ReadChild"


def test_f4_an_execution_that_is_redriven_in_any_state_starts_nothing_and_loses_no_request() -> None:
    """It may be aborted in each state. Its request is settled then."""
    states_redriven = set[str]()
    for before, after in redriven(MACHINE, waits=True):
        states_redriven.add(before.names[-1])
        if "RunStateMachine" in after.names:
            assert after.after("RunStateMachine")[0] == "ReadChild"
        assert after.end["Type"] in ("Fail", "Succeed") or after.end.get("End"), after.names
        if after.status == "SUCCEEDED":
            assert after.variables["run_state"] == "SUCCEEDED"
        elif "ReleaseSlot" in after.names:
            accounted = "RecordOutcome" in before.names + after.names or after.names[-1] == "SlotLost"
            assert accounted, (before.names, after.names)
    assert states_redriven >= {
        "ConfirmSlot",
        "ChooseWork",
        *DURING_WORK,
        "RecordOutcome",
        "ReleaseSlot",
        *AFTER_RELEASE,
    }


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
