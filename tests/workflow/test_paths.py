"""Guarantees of the workflow on every path that its data allows."""

from __future__ import annotations

import pytest

from tests.workflow.definition import states
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.walks import Path, all_walks


def _through(name: str) -> list[Path]:
    return [walk for walk in all_walks() if name in walk.names]


def test_the_walks_reach_every_end() -> None:
    assert {walk.names[-1] for walk in all_walks()} == {
        "PublishSuccessEvent",
        "RequestSucceeded",
        "RequestFailed",
        "RequestReturned",
        "RequestNotKept",
    }


def test_every_path_from_the_glue_job_releases_the_slot_or_leaves_it_to_the_janitor() -> None:
    for walk in _through("RunGlueJob"):
        assert ("ReleaseSlot" in walk.names) != ("LeaveSlotToJanitor" in walk.names), walk


def test_the_slot_is_left_to_the_janitor_only_if_a_glue_run_may_be_alive() -> None:
    for walk in _through("LeaveSlotToJanitor"):
        assert "FindGlueRun" in walk.names
        assert walk.variables["run_state"] == "UNKNOWN"


def test_a_slot_is_released_after_a_doubtful_run_only_if_it_has_ended_or_two_searches_found_none() -> None:
    """Except if the job was deleted: then FindGlueRun fails, and the catcher sets `searches`."""
    for walk in _through("WaitForGlueRun"):
        if "ReleaseSlot" in walk.names:
            doubtful = walk.names[: walk.names.index("ReleaseSlot")]
            since = doubtful[len(doubtful) - doubtful[::-1].index("RunGlueJob") :]
            if "WaitForGlueRun" in since:
                known = {"HasGlueRunEnded", "FindGlueRun"} & set(since)
                assert known, walk
                if "ReadGlueRun" not in since:
                    assert walk.variables["searches"] == 2, walk


def test_no_run_is_started_after_one_was_found() -> None:
    """The run that was found decides, not the error of RunGlueJob."""
    assert any("ReadGlueRun" in walk.names and walk.status == "SUCCEEDED" for walk in all_walks())
    for walk in _through("ReadGlueRun"):
        assert "RunGlueJob" not in walk.names[walk.names.index("ReadGlueRun") :], walk


def test_a_run_is_stopped_only_after_a_timeout_or_in_a_redriven_execution() -> None:
    failures = [walk.variables["failure"] for walk in all_walks() if "StopGlueRun" in walk.names]
    assert {failure["error"] for failure in failures} == {"States.Timeout"}
    assert any("StopGlueRun" in walk.names for walk in all_walks(redrives=1))


def test_a_hand_off_is_one_write_one_read_and_one_message_without_a_function() -> None:
    """The calls of a successful workflow while a request waits; later calls delay no request."""
    called = [
        [n for n in walk.names if states()[n]["Type"] == "Task"] for walk in all_walks() if "WakeWaiting" in walk.names
    ]
    assert ["ConfirmSlot", "RunGlueJob", "ReleaseSlot", "ReadWaiting", "WakeWaiting", "PublishSuccessEvent"] in called
    assert not [state for state in states().values() if "lambda" in state.get("Resource", "")]


def test_every_release_is_followed_by_a_read_of_the_waiting_request() -> None:
    for walk in _through("ReleaseSlot"):
        assert walk.names[walk.names.index("ReleaseSlot") + 1] == "ReadWaiting"


def test_f23_a_failed_request_is_kept_or_returned_before_its_slot_is_released() -> None:
    for walk in all_walks():
        if walk.status == "FAILED":
            accounted = [n for n, name in enumerate(walk.names) if name in ("KeepRequest", "ReturnRequest")]
            assert accounted, walk
            if "ReleaseSlot" in walk.names:
                assert max(accounted) < walk.names.index("ReleaseSlot")


def test_a_step_that_fails_does_not_stop_the_later_ones() -> None:
    for walk in all_walks():
        if walk.names[-1] in ("RequestFailed", "RequestNotKept"):
            assert "NotifyFailure" in walk.names


def test_a_success_event_is_published_only_for_a_run_that_succeeded() -> None:
    result = {"Id": "jr_1", "JobRunState": "SUCCEEDED"}
    following, variables = STATES["RunGlueJob"].leave({}, {"target": "job"}, result=result)
    assert (following, variables["run_state"]) == ("ReleaseSlot", "SUCCEEDED")
    for state in ("STOPPED", "FAILED", "TIMEOUT"):
        with pytest.raises(StateFailed, match=f"Glue run jr_1 ended as {state}"):
            STATES["RunGlueJob"].leave({}, {"target": "job"}, result={"Id": "jr_1", "JobRunState": state})
    for walk in all_walks():
        if walk.status == "SUCCEEDED":
            assert not {"KeepRequest", "ReturnRequest", "NotifyFailure"} & set(walk.names)
            assert walk.variables["run_state"] == "SUCCEEDED"


def test_a_lost_reservation_never_reaches_glue() -> None:
    (taken_back, _) = states()["ConfirmSlot"]["Catch"]
    assert taken_back["ErrorEquals"] == ["DynamoDB.ConditionalCheckFailedException"]
    assert taken_back["Next"] == "IsCallerLost"
    lost = [walk for walk in all_walks() if walk.names[1:3] == ("IsCallerLost", "ReturnRequest")]
    assert {walk.names[-1] for walk in lost} == {"RequestReturned", "RequestFailed", "RequestNotKept"}
    for walk in lost:
        assert "RunGlueJob" not in walk.names


def test_f4_a_redriven_execution_starts_no_run_and_returns_its_request_before_its_slot() -> None:
    for walk in all_walks(redrives=1):
        if "RunGlueJob" in walk.names:
            assert walk.after("RunGlueJob")[0] == "IsGlueRunKnownToHaveEnded"
        if "ReturnRequest" in walk.names and "ReleaseSlot" in walk.names:
            assert walk.names.index("ReturnRequest") < walk.names.index("ReleaseSlot")
    assert any(walk.names[-1] == "RequestReturned" and "FindGlueRun" in walk.names for walk in all_walks(redrives=1))


@pytest.mark.parametrize("end", ["RequestFailed", "RequestReturned", "RequestNotKept"])
def test_a_failed_execution_has_error_and_cause(end: str) -> None:
    for walk in all_walks():
        if walk.names[-1] == end:
            assert walk.variables["failure"]["error"]
            assert walk.variables["failure"]["cause"]
