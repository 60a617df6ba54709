"""Guarantees of the workflow on every path that its data allows."""

from __future__ import annotations

import pytest

from tests.workflow.definition import ENDS, states
from tests.workflow.interpreter import STATES, StateFailed
from tests.workflow.walks import MACHINE, Path, all_walks

WORK = {"RunGlueJob", "RunStateMachine"}
# The ends that leave the slot taken, until the work is proved to have ended.
SLOT_STAYS = {"WorkIsUnknown", "ChildTooLarge", "OutcomeNotRecorded"}


def every_walk(redrives: int = 0) -> tuple[Path, ...]:
    """The walks of both kinds of work, with and without a caller."""
    return tuple(
        walk for target in ("job", MACHINE) for waits in (False, True) for walk in all_walks(redrives, target, waits)
    )


def _through(name: str) -> list[Path]:
    return [walk for walk in all_walks() if name in walk.names]


def test_the_walks_reach_every_end() -> None:
    ends = {state for state, fields in states().items() if fields["Type"] in ENDS}
    assert {walk.names[-1] for walk in every_walk()} == ends


def test_every_path_from_the_confirmed_slot_releases_it_or_ends_with_a_proof_to_come() -> None:
    for walk in (*every_walk(), *every_walk(redrives=1)):
        if walk.names != ("ConfirmSlot", "SlotLost"):
            assert ("ReleaseSlot" in walk.names) != (walk.names[-1] in SLOT_STAYS), walk.names


def test_no_outcome_is_recorded_and_no_slot_released_while_the_work_may_be_alive() -> None:
    searches = {"IsGlueRunFound": 2, "HasChildEnded": 3}
    for walk in (*every_walk(), *every_walk(redrives=1)):
        if not WORK & set(walk.names) or walk.names[-1] in ("ChildTooLarge", "WorkIsUnknown"):
            continue
        at = min(walk.names.index(name) for name in ("RecordOutcome", "ReleaseSlot") if name in walk.names)
        known, before = walk.entered[at], walk.names[at - 1]
        has_ended = known["run_state"] in ("SUCCEEDED", "FAILED", "STOPPED", "ABORTED", "TIMED_OUT")
        is_not_found = (before != "HasChildEnded" or known["run_state"] == "NOT_FOUND") and (
            known.get("searches", 0) >= searches.get(before, 99)
        )
        assert has_ended or is_not_found or before in ("IsGlueRunKnownToHaveEnded", "NameTaken"), walk.names


def test_no_run_is_started_after_one_was_found() -> None:
    """The run that was found decides, not the error of RunGlueJob."""
    assert any("ReadGlueRun" in walk.names and walk.status == "SUCCEEDED" for walk in all_walks())
    for walk in _through("ReadGlueRun"):
        assert "RunGlueJob" not in walk.names[walk.names.index("ReadGlueRun") :], walk


def test_a_run_is_stopped_only_after_a_timeout_or_in_a_redriven_execution() -> None:
    failures = [walk.variables["failure"] for walk in all_walks() if "StopGlueRun" in walk.names]
    assert {failure["error"] for failure in failures} == {"States.Timeout"}
    assert any("StopGlueRun" in walk.names for walk in all_walks(redrives=1))


def test_a_success_is_only_of_a_run_that_succeeded() -> None:
    result = {"Id": "jr_1", "JobRunState": "SUCCEEDED"}
    following, variables = STATES["RunGlueJob"].leave({}, {"target": "job"}, result=result)
    assert (following, variables["run_state"]) == ("RecordOutcome", "SUCCEEDED")
    for state in ("STOPPED", "FAILED", "TIMEOUT"):
        with pytest.raises(StateFailed, match=f"Glue run jr_1 ended as {state}"):
            STATES["RunGlueJob"].leave({}, {"target": "job"}, result={"Id": "jr_1", "JobRunState": state})
    for walk in all_walks():
        assert (walk.status == "SUCCEEDED") == (walk.names[-1] == "RequestSucceeded")
        assert walk.status != "SUCCEEDED" or walk.variables["run_state"] == "SUCCEEDED"


def test_a_lost_reservation_never_reaches_glue() -> None:
    (taken_back, other) = states()["ConfirmSlot"]["Catch"]
    assert taken_back["ErrorEquals"] == ["DynamoDB.ConditionalCheckFailedException"]
    assert (taken_back["Next"], other["Next"]) == ("SlotLost", "RecordOutcome")
    assert [walk.names for walk in every_walk() if "SlotLost" in walk.names] == [("ConfirmSlot", "SlotLost")] * 4


def test_f4_a_redriven_execution_starts_no_run_and_leaves_its_request_to_the_next_attempt() -> None:
    """Its row has no outcome of this execution, unless the work of the one before has succeeded after all."""
    lost = [walk for walk in every_walk(redrives=1) if walk.names[-1] == "SlotLost" and len(walk.names) > 2]
    assert any("FindGlueRun" in walk.names for walk in lost)
    for walk in lost:
        assert walk.names[-4:] == ("ReleaseSlot", "Ring", "ChooseOutcome", "SlotLost")
        assert "RecordOutcome" not in walk.names, walk.names
    for walk in all_walks(redrives=1):
        if "RunGlueJob" in walk.names:
            assert walk.after("RunGlueJob")[0] == "IsGlueRunKnownToHaveEnded"
