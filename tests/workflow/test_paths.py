"""Guarantees of the workflow on every path that its data allows."""

from __future__ import annotations

import pytest

from tests.workflow.definition import ENDS, states
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.walks import MACHINE, Path, all_walks

WORK = {"RunGlueJob", "RunStateMachine"}
LATER = {"AnswerSuccess", "AnswerFailure", "PublishSuccessEvent", "PublishFailureEvent", "NotifyFailure"}


def every_walk(redrives: int = 0) -> tuple[Path, ...]:
    """The walks of both kinds of work, with and without a caller."""
    return tuple(
        walk for target in ("job", MACHINE) for waits in (False, True) for walk in all_walks(redrives, target, waits)
    )


def _through(name: str) -> list[Path]:
    return [walk for walk in all_walks() if name in walk.names]


def test_the_walks_reach_every_end() -> None:
    ends = {state for state, fields in states().items() if fields["Type"] in ENDS or fields.get("End")}
    assert {walk.names[-1] for walk in every_walk()} == ends


def test_every_path_from_the_work_releases_the_slot_or_leaves_it_to_the_janitor() -> None:
    for walk in (*every_walk(), *every_walk(redrives=1)):
        if WORK & set(walk.names):
            left = {"LeaveSlotToJanitor", "ChildTooLarge", "OutcomeNotRecorded"} & set(walk.names)
            assert ("ReleaseSlot" in walk.names) != bool(left), walk.names


def test_the_slot_is_released_and_the_doorbell_rung_before_the_answer_the_event_and_the_e_mail() -> None:
    """What can wait for an outage of its service delays no request. The answer is at most one."""
    for walk in (*every_walk(), *every_walk(redrives=1)):
        later = [n for n, name in enumerate(walk.names) if name in LATER]
        if later:
            assert not {"RecordOutcome", "ReleaseSlot", "Ring", "KeepRequest"} & set(walk.names[later[0] :])
            assert len({"AnswerSuccess", "AnswerFailure"} & set(walk.names)) <= 1, walk.names


def test_no_run_is_started_after_one_was_found() -> None:
    """The run that was found decides, not the error of RunGlueJob."""
    assert any("ReadGlueRun" in walk.names and walk.status == "SUCCEEDED" for walk in all_walks())
    for walk in _through("ReadGlueRun"):
        assert "RunGlueJob" not in walk.names[walk.names.index("ReadGlueRun") :], walk


def test_a_run_is_stopped_only_after_a_timeout_or_in_a_redriven_execution() -> None:
    failures = [walk.variables["failure"] for walk in all_walks() if "StopGlueRun" in walk.names]
    assert {failure["error"] for failure in failures} == {"States.Timeout"}
    assert any("StopGlueRun" in walk.names for walk in all_walks(redrives=1))


def test_f23_a_failed_request_is_kept_before_its_slot_is_released() -> None:
    for walk in all_walks():
        if walk.status == "FAILED" and walk.names[-1] not in ("SlotLost", "OutcomeNotRecorded"):
            assert "KeepRequest" in walk.names, walk
            if "ReleaseSlot" in walk.names:
                assert walk.names.index("KeepRequest") < walk.names.index("ReleaseSlot")


def test_a_success_event_is_published_only_for_a_run_that_succeeded() -> None:
    result = {"Id": "jr_1", "JobRunState": "SUCCEEDED"}
    following, variables = STATES["RunGlueJob"].leave({}, {"target": "job"}, result=result)
    assert (following, variables["run_state"]) == ("RecordOutcome", "SUCCEEDED")
    for state in ("STOPPED", "FAILED", "TIMEOUT"):
        with pytest.raises(StateFailed, match=f"Glue run jr_1 ended as {state}"):
            STATES["RunGlueJob"].leave({}, {"target": "job"}, result={"Id": "jr_1", "JobRunState": state})
    for walk in all_walks():
        if walk.status == "SUCCEEDED":
            assert not {"KeepRequest", "NotifyFailure"} & set(walk.names)
            assert walk.variables["run_state"] == "SUCCEEDED"


def test_a_lost_reservation_never_reaches_glue() -> None:
    (taken_back, _) = states()["ConfirmSlot"]["Catch"]
    assert taken_back["ErrorEquals"] == ["DynamoDB.ConditionalCheckFailedException"]
    assert taken_back["Next"] == "SlotLost"
    assert [walk.names for walk in every_walk() if "SlotLost" in walk.names] == [("ConfirmSlot", "SlotLost")] * 4


def test_f4_a_redriven_execution_starts_no_run_and_leaves_its_request_to_the_next_attempt() -> None:
    """Its row has no outcome of this execution, unless the work of the one before has succeeded after all."""
    lost = [walk for walk in every_walk(redrives=1) if walk.names[-1] == "SlotLost" and len(walk.names) > 2]
    assert any("FindGlueRun" in walk.names for walk in lost)
    for walk in lost:
        assert walk.names[-4:] == ("ReleaseSlot", "Ring", "ChooseOutcome", "SlotLost")
        assert not {"KeepRequest", "RecordOutcome"} & set(walk.names), walk.names
    for walk in all_walks(redrives=1):
        if "RunGlueJob" in walk.names:
            assert walk.after("RunGlueJob")[0] == "IsGlueRunKnownToHaveEnded"
