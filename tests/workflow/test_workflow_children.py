"""Guarantees of the workflow for a process that runs a state machine."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.session import Session

from tests.workflow.child_cases import OPEN
from tests.workflow.definition import states, targets
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.walks import CHILD, MACHINE, SETTLE_SECONDS, Path, all_walks, child, redriven

DURING_WORK = ("ReadToken", "AskCaller", "RunStateMachine", "ReadChild", "WaitForChild", "StopChild", "SettleChild")
AFTER_RELEASE = ("ReadWaiting", "NotifyFailure", "AnswerSuccess", "AnswerFailure", "AnswerFailed", "RequestFailed")
CLOSED = {"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"}


def _walks(redrives: int = 0) -> tuple[Path, ...]:
    return all_walks(redrives, MACHINE) + all_walks(redrives, MACHINE, waits=True)


def _entries(walk: Path, state: str) -> list[dict[str, Any]]:
    """The variables of each entry of a state."""
    return [known for name, known in zip(walk.names, walk.entered, strict=True) if name == state]


def test_the_walks_reach_every_end() -> None:
    assert {walk.names[-1] for walk in _walks()} == {
        "PublishSuccessEvent",
        "RequestSucceeded",
        "RequestFailed",
        "RequestReturned",
        "RequestNotKept",
        "AnswerFailed",
        "ChildTooLarge",
    }


@pytest.mark.parametrize("target", ["job", MACHINE])
def test_a_success_takes_nine_transitions_with_the_wake_of_a_waiting_request(target: str) -> None:
    """Step Functions charges for each transition; docs/costs.md has the price of a request."""
    lengths = [
        len(walk.names) for walk in all_walks(0, target) if walk.status == "SUCCEEDED" and "WakeWaiting" in walk.names
    ]
    assert min(lengths) == 9


def test_no_state_machine_starts_before_the_slot_is_confirmed_and_the_caller_is_asked() -> None:
    assert {name for name, state in states().items() if "RunStateMachine" in targets(state)} == {"ChooseWork"}
    for walk in _walks():
        if "RunStateMachine" in walk.names:
            before = walk.names[: walk.names.index("RunStateMachine")]
            assert before[:2] == ("ConfirmSlot", "ChooseWork")
            assert ("AskCaller" in before) == (_entries(walk, "RunStateMachine")[0]["caller"] != "NONE")


def test_a_state_machine_is_started_once_for_each_execution() -> None:
    """A second StartExecution of the name fails, but the answer of the first one may be lost: ReadChild decides."""
    assert {walk.names.count("RunStateMachine") for walk in _walks()} == {0, 1}


def test_every_path_from_the_state_machine_releases_the_slot_or_leaves_it_to_the_janitor() -> None:
    for walk in _walks() + _walks(redrives=1):
        if "RunStateMachine" in walk.names:
            left = {"LeaveSlotToJanitor", "ChildTooLarge"} & set(walk.names)
            assert ("ReleaseSlot" in walk.names) != bool(left), walk.names


@pytest.mark.parametrize("state", ["RunStateMachine", "ReadChild"])
def test_a_child_too_large_to_be_read_is_neither_kept_nor_returned_nor_released_by_the_workflow(state: str) -> None:
    """Whether States.ALL catches the error or not (ALL_CATCHES_DATA_LIMIT in interpreter.py)."""
    too_large = StateFailed("States.DataLimitExceeded", "")
    assert STATES[state].retry_after(too_large.error, {}) is None
    assert STATES[state].catch(too_large, {}, {"target": MACHINE}) == ("ChildTooLarge", {"target": MACHINE})
    ends = [walk for walk in _walks() + _walks(redrives=1) if "ChildTooLarge" in walk.names]
    assert ends
    for walk in ends:
        assert not {"KeepRequest", "ReturnRequest", "ReleaseSlot"} & set(walk.names), walk.names


def test_the_slot_is_released_only_after_a_read_that_finds_no_open_child_of_this_execution() -> None:
    for walk in _walks() + _walks(redrives=1):
        if "ReleaseSlot" not in walk.names or "ReadChild" not in walk.names:
            continue
        last = _entries(walk, "HasChildEnded")[-1]
        assert last["failed_reads"] == 0
        assert last["run_state"] in CLOSED or not last["is_ours"] or last["searches"] == 3, walk.names


def test_a_child_is_stopped_only_if_it_is_ours_and_after_a_timeout_or_in_a_redriven_execution() -> None:
    for redrives in (0, 1):
        stopped = [walk for walk in _walks(redrives) if "StopChild" in walk.names]
        assert stopped
        for known in (known for walk in stopped for known in _entries(walk, "StopChild")):
            assert known["is_ours"]
            assert known["run_state"] not in CLOSED
            assert redrives or known["failure"]["error"] == "States.Timeout"


def test_a_child_that_has_succeeded_is_a_success_after_any_error_of_its_task() -> None:
    for walk in _walks() + _walks(redrives=1):
        seen = _entries(walk, "HasChildEnded")
        succeeded = bool(seen) and seen[-1]["run_state"] == "SUCCEEDED" and seen[-1]["is_ours"]
        if seen and walk.names[-1] != "ChildTooLarge":
            assert ("KeepRequest" not in walk.names and "ReturnRequest" not in walk.names) == succeeded, walk.names


def test_an_execution_of_the_same_name_that_is_not_ours_is_not_touched_and_its_outcome_not_taken_over() -> None:
    """For example a success of an execution that was started manually."""
    taken = [walk for walk in _walks() + _walks(redrives=1) if "NameTaken" in walk.names]
    assert {_entries(walk, "NameTaken")[0]["run_state"] for walk in taken} == {"SUCCEEDED", "RUNNING"}
    for walk in taken:
        if any(known["is_ours"] and known["run_state"] != "NOT_FOUND" for known in _entries(walk, "HasChildEnded")):
            continue  # a read found our own child first, and no two executions have one name
        assert walk.status == "FAILED"
        assert not {"StopChild", "SettleChild", "AnswerSuccess", "PublishSuccessEvent"} & set(walk.names)
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


def test_the_failure_of_a_child_is_kept_with_its_own_error_and_cause() -> None:
    failed = [walk for walk in _walks() if "ChildNotSucceeded" in walk.names]
    causes = {walk.variables["failure"]["cause"] for walk in failed}
    assert f"{CHILD} ended as FAILED: NoRows: the month is empty" in causes
    assert {walk.variables["failure"]["error"] for walk in failed} == {"StateMachine.ExecutionNotSucceeded"}


@pytest.mark.parametrize(
    ("seen", "next_state"),
    [
        ({}, "WaitForChild"),
        ({"run_state": "SUCCEEDED"}, "ReleaseSlot"),
        ({"run_state": "SUCCEEDED", "must_stop": True, "return_request": True, "stops": 120}, "ReleaseSlot"),
        ({"run_state": "SUCCEEDED", "is_ours": False}, "NameTaken"),
        ({"run_state": "RUNNING", "is_ours": False, "must_stop": True}, "NameTaken"),
        ({"run_state": "FAILED"}, "ChildNotSucceeded"),
        ({"run_state": "FAILED", "must_stop": True}, "KeepRequest"),
        ({"run_state": "FAILED", "must_stop": True, "return_request": True}, "ReturnRequest"),
        ({"run_state": "ABORTED"}, "SettleChild"),
        ({"run_state": "ABORTED", "settle_seconds": 0}, "ChildNotSucceeded"),
        ({"run_state": "ABORTED", "closed_seconds": 89}, "SettleChild"),
        ({"run_state": "TIMED_OUT", "closed_seconds": 90}, "ChildNotSucceeded"),
        ({"run_state": "ABORTED", "must_stop": True, "stops": 120, "closed_seconds": 90}, "KeepRequest"),
        ({"run_state": "NOT_FOUND", "searches": 2}, "WaitForChild"),
        ({"run_state": "NOT_FOUND", "searches": 3}, "KeepRequest"),
        ({"run_state": "NOT_FOUND", "searches": 3, "return_request": True, "must_stop": True}, "ReturnRequest"),
        ({"failed_reads": 1}, "WaitForChild"),
        ({"failed_reads": 59, "must_stop": True}, "WaitForChild"),
        ({"failed_reads": 60}, "WorkIsUnknown"),
        ({"run_minutes": 4}, "WaitForChild"),
        ({"run_minutes": 5}, "ChildIsLate"),
        ({"run_state": "PENDING_REDRIVE"}, "WaitForChild"),
        ({"must_stop": True, "stops": 119}, "StopChild"),
        ({"must_stop": True, "stops": 120}, "WorkIsUnknown"),
    ],
)
def test_the_childs_own_status_decides(seen: dict[str, Any], next_state: str) -> None:
    """The child has five minutes, and its process ninety seconds to settle."""
    assert STATES["HasChildEnded"].choose({}, OPEN | seen) == next_state


def test_reads_that_fail_and_reads_without_a_child_end_after_a_bounded_number() -> None:
    context: dict[str, Any] = {"Execution": {"Id": "arn:p-1", "RedriveCount": 0}}
    lost, absent = StateFailed("Sfn.SfnException"), StateFailed("Sfn.ExecutionDoesNotExistException")
    for answers, last in ((200 * [lost], "WorkIsUnknown"), ([lost] + 200 * [absent], "KeepRequest")):
        variables = OPEN | {"run_state": "NOT_FOUND"}
        following = "WaitForChild"
        for answer in answers:
            if following != "WaitForChild":
                break
            _, variables = STATES["ReadChild"].catch(answer, context, variables)
            following = STATES["HasChildEnded"].choose(context, variables)
        assert following == last


def test_a_child_is_never_left_behind_open_by_a_wait_without_end() -> None:
    """Each way round the loop reads the child again, and an open child is stopped after its time."""
    assert states()["WaitForChild"]["Next"] == "ReadChild"
    variables, reads = OPEN | {"run_minutes": 0}, 0
    while (following := STATES["HasChildEnded"].choose({}, variables)) != "WorkIsUnknown":
        reads += 1
        assert reads < 300
        if following in ("StopChild", "ChildIsLate"):
            variables = variables | {"must_stop": True, "stops": variables["stops"] + 1}
        variables = variables | {"run_minutes": variables["run_minutes"] + 1}


def test_the_time_limit_of_a_child_is_that_of_its_process() -> None:
    task = STATES["RunStateMachine"]
    assert task.value("TimeoutSeconds", {}, {"timeout_minutes": 7}) == 420
    late = child("RUNNING", started="2026-01-01T00:02:00.000Z")
    context = {"Execution": {"Id": "x"}, "State": {"EnteredTime": "2026-01-01T00:09:00.000Z"}}
    _, known = STATES["ReadChild"].leave(context, {"caller": "NONE"}, result=late)
    assert known["run_minutes"] == 7


@pytest.mark.parametrize("redrives", [0, 1])
def test_f4_a_redriven_execution_starts_no_child(redrives: int) -> None:
    context = {"Execution": {"RedriveCount": redrives, "Name": "p-1", "Id": "arn:p-1", "Input": {}}}
    if redrives:
        with pytest.raises(StateFailed, match="a redriven execution holds no slot"):
            STATES["RunStateMachine"].value("Arguments", context, {"target": MACHINE})
    else:
        assert STATES["RunStateMachine"].value("Arguments", context, {"target": MACHINE})["StateMachineArn"] == MACHINE


def test_f4_an_execution_that_is_redriven_in_any_state_starts_nothing_and_loses_no_request() -> None:
    """It may be aborted in each state. The janitor has kept its request then."""
    states_redriven = set[str]()
    for before, after in redriven(MACHINE, waits=True):
        states_redriven.add(before.names[-1])
        if "RunStateMachine" in after.names:
            assert after.after("RunStateMachine")[0] == "ReadChild"
        assert after.end["Type"] in ("Fail", "Succeed") or after.end.get("End"), after.names
        if after.status == "SUCCEEDED":
            assert after.variables["run_state"] == "SUCCEEDED"
        elif "ReleaseSlot" in after.names:
            accounted = {"KeepRequest", "ReturnRequest"} & {*before.names, *after.names}
            assert accounted or after.variables["run_state"] == "SUCCEEDED", (before.names, after.names)
    assert states_redriven >= {"ConfirmSlot", "ChooseWork", *DURING_WORK, "KeepRequest", "ReleaseSlot", *AFTER_RELEASE}


def _errors(state: str, prefix: str) -> set[str]:
    rules = states()[state].get("Retry", []) + states()[state]["Catch"]
    return {error for rule in rules for error in rule["ErrorEquals"] if error.startswith(prefix)}


@pytest.mark.parametrize(
    ("state", "operation"),
    [("ReadChild", "DescribeExecution"), ("AnswerSuccess", "SendTaskSuccess"), ("AnswerFailure", "SendTaskFailure")],
)
def test_the_error_names_are_those_of_the_operation_with_the_suffix_exception(state: str, operation: str) -> None:
    """Step Functions guide, "Learning to use AWS service SDK integrations in Step Functions": the name in the API
    Reference, such as TaskTimedOut, has the suffix Exception in the integration even if it has none there.
    """
    model = Session().get_service_model("stepfunctions").operation_model(operation)
    known = {f"Sfn.{shape.name.removesuffix('Exception')}Exception" for shape in model.error_shapes}
    assert _errors(state, "Sfn.") <= known
    assert _errors(state, "Sfn.")


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
