"""Guarantees of the workflow on every path that its data allow, of executions that are redriven in any state too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.settlement import WITH_FAILURE, Failed, Succeeded, decide
from tests.workflow.case import CONTEXT, MANUAL_INPUTS, of_input
from tests.workflow.definition import ENDS, states
from tests.workflow.interpreter import ME, STATES, StateFailed, Variables, mentioned
from tests.workflow.paths import MACHINE, SETTLE_SECONDS, TOKEN, Path, context_of, paths, redriven

TARGETS = ("job", MACHINE)
WORK = {"RunGlueJob", "RunStateMachine"}
# The ends that leave the slot taken, until the work is proved to have ended.
SLOT_STAYS = {"WorkIsUnknown", "ChildTooLarge", "OutcomeNotRecorded"}
TO_THE_RELEASE = ("RecordOutcome", "ReleaseSlot", "Ring", "ChooseOutcome")


def _first(*targets: str, waits: tuple[bool, ...] = (False, True)) -> list[Path]:
    """The paths that are not redriven, of these targets or of all, with and without a caller."""
    return [path for target in targets or TARGETS for each in waits for path in paths(target, each)]


def _redriven(*targets: str) -> list[Path]:
    return [path for target in targets or TARGETS for waits in (False, True) for path in redriven(target, waits)]


def _every(*targets: str) -> list[Path]:
    return _first(*targets) + _redriven(*targets)


def test_the_paths_reach_every_end_and_are_redriven_in_every_state() -> None:
    assert {path.names[-1] for path in _first()} == {n for n, each in states().items() if each["Type"] in ENDS}
    entered = {path.names[path.redriven] for path in _redriven() if path.redriven is not None}
    of_the_input_or_target = {"WrongInput", "TargetNotPermitted"}  # each has cases of its own, and one successor
    assert entered == states().keys() - of_the_input_or_target


# ------------------------------------------------------------------------------------------- the slot and the outcome


def test_every_path_from_the_confirmed_slot_releases_it_or_ends_with_a_proof_to_come() -> None:
    for path in _every():
        if path.names != ("ConfirmSlot", "SlotLost"):
            assert ("ReleaseSlot" in path.names) != (path.names[-1] in SLOT_STAYS), path.names


def test_no_outcome_is_recorded_and_no_slot_released_while_the_work_may_be_alive() -> None:
    searches = {"IsGlueRunFound": 2, "HasChildEnded": 3}
    for path in _every():
        if not WORK & set(path.names) or path.names[-1] in ("ChildTooLarge", "WorkIsUnknown"):
            continue
        at = min(path.names.index(name) for name in ("RecordOutcome", "ReleaseSlot") if name in path.names)
        known, before = path.entered[at], path.names[at - 1]
        has_ended = known["run_state"] in ("SUCCEEDED", "FAILED", "STOPPED", "ABORTED", "TIMED_OUT")
        is_not_found = (before != "HasChildEnded" or known["run_state"] == "NOT_FOUND") and (
            known.get("searches", 0) >= searches.get(before, 99)
        )
        assert has_ended or is_not_found or before in ("IsGlueRunKnownToHaveEnded", "NameTaken"), path.names


def test_an_outcome_is_recorded_before_the_release_and_the_doorbell_is_rung_after_it() -> None:
    """A request without an outcome, whose start is not marked, would be granted a slot again after the release. A ring
    before the release would find no free slot. A redriven execution started no work: its next attempt has an outcome.
    """
    for path in _every():
        if "ReleaseSlot" not in path.names:
            assert "Ring" not in path.names, path.names
        elif path.names[-1] == "SlotLost":
            assert path.names[-4:-1] == TO_THE_RELEASE[1:], path.names
        else:
            at = path.names.index("RecordOutcome")
            assert path.names[at : at + 4] == TO_THE_RELEASE, path.names


def test_the_outcome_that_is_recorded_is_that_of_the_execution() -> None:
    for path in _every():
        if "RecordOutcome" in path.names and path.names[-1] != "OutcomeNotRecorded":
            (known,) = path.entries("RecordOutcome")
            assert (known["run_state"] == "SUCCEEDED") == (path.status == "SUCCEEDED"), path.names


@pytest.mark.parametrize(
    ("state", "error", "following"),
    [
        # The request may be redriven already, and a manually started execution has no row. The janitor would find no
        # reason to keep such a slot, but would free it only after its checks.
        ("RecordOutcome", "DynamoDB.ConditionalCheckFailedException", "ReleaseSlot"),
        # The holder is what lets the janitor find the request, and what keeps it from a second start.
        ("RecordOutcome", "DynamoDB.TransactionConflictException", "OutcomeNotRecorded"),
        ("RecordOutcome", "States.Timeout", "OutcomeNotRecorded"),
        # The janitor frees the slot, and dispatches each process with queued requests once a minute.
        ("ReleaseSlot", "DynamoDB.ConditionalCheckFailedException", "Ring"),
        ("ReleaseSlot", "States.Timeout", "Ring"),
        ("Ring", "States.Timeout", "ChooseOutcome"),
    ],
)
def test_a_slot_stays_taken_only_if_its_outcome_is_not_recorded(state: str, error: str, following: str) -> None:
    assert STATES[state].catch(StateFailed(error, "no answer"), {}, {}) == (following, {})


def test_the_settlement_reads_the_outcome_that_the_workflow_could_not_record() -> None:
    """If its work cannot be found any more: otherwise the work's own status decides."""
    ends = [path for path in _first() if path.end.get("Error") in WITH_FAILURE]
    assert {path.names[-1] for path in ends} == {"WorkIsUnknown", "OutcomeNotRecorded", "RequestFailed"}
    for path in ends:
        cause = STATES[path.names[-1]].value("Cause", CONTEXT, path.variables)
        execution = Execution(ME, "FAILED", 1.0, error=path.end["Error"], cause=cause)
        failure = path.variables["failure"]
        has_succeeded = path.variables["run_state"] == "SUCCEEDED"
        assert decide(execution, None) == (Succeeded() if has_succeeded else Failed(failure["error"], failure["cause"]))


def test_a_lost_reservation_never_reaches_glue() -> None:
    (taken_back, other) = states()["ConfirmSlot"]["Catch"]
    assert taken_back["ErrorEquals"] == ["DynamoDB.ConditionalCheckFailedException"]
    assert (taken_back["Next"], other["Next"]) == ("SlotLost", "RecordOutcome")
    assert [path.names for path in _first() if "SlotLost" in path.names] == [("ConfirmSlot", "SlotLost")] * 4


def test_f4_a_redriven_execution_starts_no_work_and_loses_no_request() -> None:
    """Its row has no outcome of this execution, unless the work of the one before has succeeded after all."""
    searched = {"RunGlueJob": "IsGlueRunKnownToHaveEnded", "RunStateMachine": "ReadChild"}
    returned = 0
    for path in _redriven():
        assert path.redriven is not None
        again = path.names[path.redriven :]
        for name, following in pairwise(again):
            assert searched.get(name, following) == following, path.names
        if path.names[-1] == "SlotLost" and path.names != ("ConfirmSlot", "SlotLost"):
            assert path.names[-4:] == ("ReleaseSlot", "Ring", "ChooseOutcome", "SlotLost")
            assert "RecordOutcome" not in path.names, path.names
            returned += "FindGlueRun" in again
        elif path.status == "SUCCEEDED":
            assert path.variables["run_state"] == "SUCCEEDED"
        elif "ReleaseSlot" in path.names:
            assert "RecordOutcome" in path.names, path.names
    assert returned


@pytest.mark.parametrize("given", MANUAL_INPUTS[:4])
def test_a_manually_started_execution_that_names_no_process_writes_nothing(given: object) -> None:
    known = {"run_state": "NOT_STARTED", "failure": {"error": "E", "cause": "C"}, "caller": "UNKNOWN", "answer": ""}
    for state in ("RecordOutcome", "ReleaseSlot", "Ring"):
        with pytest.raises(StateFailed, match="QueryEvaluationError"):
            STATES[state].value("Arguments", of_input(given), known)


# -------------------------------------------------------------------------------------------------------- the Glue run


def test_no_run_is_started_after_one_was_found() -> None:
    """The run that was found decides, not the error of RunGlueJob."""
    found = [path for path in _first("job") if "ReadGlueRun" in path.names]
    assert any(path.status == "SUCCEEDED" for path in found)
    for path in found:
        assert "RunGlueJob" not in path.after("ReadGlueRun"), path.names


def test_a_run_is_stopped_only_after_a_timeout_or_in_a_redriven_execution() -> None:
    failures = [path.variables["failure"] for path in _first("job") if "StopGlueRun" in path.names]
    assert {failure["error"] for failure in failures} == {"States.Timeout"}
    assert any("StopGlueRun" in path.names for path in _redriven("job"))


def test_a_success_is_only_of_a_run_that_succeeded() -> None:
    result = {"Id": "jr_1", "JobRunState": "SUCCEEDED"}
    following, variables = STATES["RunGlueJob"].leave({}, {"target": "job"}, result=result)
    assert (following, variables["run_state"]) == ("RecordOutcome", "SUCCEEDED")
    for state in ("STOPPED", "FAILED", "TIMEOUT"):
        with pytest.raises(StateFailed, match=f"Glue run jr_1 ended as {state}"):
            STATES["RunGlueJob"].leave({}, {"target": "job"}, result={"Id": "jr_1", "JobRunState": state})
    for path in _first():
        assert (path.status == "SUCCEEDED") == (path.names[-1] == "RequestSucceeded")
        assert path.status != "SUCCEEDED" or path.variables["run_state"] == "SUCCEEDED"


@pytest.mark.parametrize("target", TARGETS)
def test_a_success_takes_eight_transitions(target: str) -> None:
    """Step Functions charges for each transition; docs/costs.md has the price of a request."""
    assert min(len(path.names) for path in paths(target) if path.status == "SUCCEEDED") == 8


# ----------------------------------------------------------------------------------------------------------- the child


def test_a_state_machine_is_started_once_for_each_execution() -> None:
    """A second StartExecution of the name fails, but the answer of the first one may be lost: ReadChild decides."""
    assert {path.names.count("RunStateMachine") for path in _first(MACHINE)} == {0, 1}


@pytest.mark.parametrize("state", ["RunStateMachine", "ReadChild"])
def test_the_workflow_neither_records_nor_releases_for_a_child_too_large_to_be_read(state: str) -> None:
    """Whether States.ALL catches the error or not (ALL_CATCHES_DATA_LIMIT in interpreter.py)."""
    too_large = StateFailed("States.DataLimitExceeded", "")
    assert STATES[state].retry_after(too_large.error, {}) is None
    assert STATES[state].catch(too_large, {}, {"target": MACHINE}) == ("ChildTooLarge", {"target": MACHINE})
    ends = [path for path in _every(MACHINE) if "ChildTooLarge" in path.names]
    assert ends
    for path in ends:
        assert not {"RecordOutcome", "ReleaseSlot"} & set(path.names), path.names


def test_a_child_that_has_succeeded_is_a_success_after_any_error_of_its_task() -> None:
    for path in _every(MACHINE):
        seen = path.entries("HasChildEnded")
        succeeded = bool(seen) and seen[-1]["run_state"] == "SUCCEEDED" and seen[-1]["is_ours"]
        if seen and path.names[-1] not in ("ChildTooLarge", "OutcomeNotRecorded"):
            assert (path.names[-1] == "RequestSucceeded") == succeeded, path.names


def test_an_execution_of_the_same_name_that_is_not_ours_is_not_touched_and_its_outcome_not_taken_over() -> None:
    """For example a success of an execution that was started manually."""
    taken = [path for path in _every(MACHINE) if "NameTaken" in path.names]
    assert {path.entries("NameTaken")[0]["run_state"] for path in taken} == {"SUCCEEDED", "RUNNING"}
    for path in taken:
        if any(known["is_ours"] and known["run_state"] != "NOT_FOUND" for known in path.entries("HasChildEnded")):
            continue  # a read found our own child first, and no two executions have one name
        assert path.status == "FAILED"
        assert not {"StopChild", "SettleChild"} & set(path.names)
        assert path.variables["failure"]["error"] == "NameTaken"


def test_a_slot_is_kept_while_the_work_of_an_aborted_child_may_outlive_it() -> None:
    settled = 0
    for path in _every(MACHINE):
        ended = {known["run_state"] for known in path.entries("HasChildEnded") if known["is_ours"]}
        assert "SettleChild" not in path.names or ended & {"ABORTED", "TIMED_OUT"}, path.names
        if "SettleChild" in path.names and "ReleaseSlot" in path.names:
            settled += 1
            assert path.names.index("SettleChild") < path.names.index("ReleaseSlot")
    assert settled
    for known in (known for path in _first(MACHINE) for known in path.entries("ReleaseSlot")):
        if known.get("run_state") in {"ABORTED", "TIMED_OUT"} and known["is_ours"]:
            assert known["closed_seconds"] >= SETTLE_SECONDS


# ---------------------------------------------------------------- the caller, a task of another execution, that waits


def _with_caller() -> Iterator[tuple[str, Variables]]:
    """Each state of the paths with a caller, with its variables, once."""
    seen = set[tuple[str, int]]()
    for path in (path for target in TARGETS for path in paths(target, waits=True) + redriven(target, waits=True)):
        for name, variables in zip(path.names, path.entered, strict=True):
            if (name, id(variables)) not in seen:
                seen.add((name, id(variables)))
                yield name, variables


def test_an_answer_is_recorded_of_a_success_whose_caller_waits_and_of_nothing_else() -> None:
    seen, recorded = set[tuple[bool, str]](), [known for name, known in _with_caller() if name == "RecordOutcome"]
    recorded += [known for path in _first(waits=(False,)) for known in path.entries("RecordOutcome")]
    for known in recorded:
        arguments = STATES["RecordOutcome"].value("Arguments", context_of("job", waits=True), known)
        expected = {"S": known["answer"]} if (known["run_state"], known["caller"]) == ("SUCCEEDED", "WAITS") else None
        assert arguments["ExpressionAttributeValues"].get(":answer") == expected
        seen.add((expected is not None, known["caller"]))
    assert seen == {(True, "WAITS"), (False, "WAITS"), (False, "NONE"), (False, "GONE"), (False, "UNKNOWN")}


def test_work_starts_only_after_the_slot_was_confirmed_and_the_caller_was_asked() -> None:
    asked = ("ConfirmSlot", "ChooseWork", "ReadToken", "AskCaller", "ChooseWork")
    for waits, expected in ((True, asked), (False, asked[:2])):
        for path in _first(waits=(waits,)):
            for work in WORK & set(path.names):
                assert path.names[: path.names.index(work)] == expected


def test_nothing_starts_for_a_caller_that_is_gone() -> None:
    gone = [path for path in _first(waits=(True,)) if "CallerGone" in path.names]
    errors = {path.variables["caller_error"] for path in gone}
    assert errors == {"Sfn.TaskTimedOutException", "its row has no task token"}
    for path in gone:
        assert not WORK & set(path.names), path.names
        assert path.after("CallerGone")[0] == "RecordOutcome"
        assert path.variables["failure"]["error"] == "CallerGone"


def test_nothing_starts_for_a_caller_whose_token_could_not_be_read() -> None:
    asked = [path for path in _first(waits=(True,)) if "ReadToken" in path.names]
    unread = [path for path in asked if path.after("ReadToken")[0] == "RecordOutcome"]
    assert unread
    for path in unread:
        assert not {*WORK, "CallerGone"} & set(path.names)


def test_the_token_is_only_where_the_caller_is_asked() -> None:
    found, context = set[str](), context_of("job", waits=True)
    for name, variables in _with_caller():
        assert TOKEN not in str({**variables, "task_token": ""}), name
        for field in {"Arguments", "Cause", "Error", "Output"} & STATES[name].fields.keys():
            try:
                value = STATES[name].value(field, context, variables)
            except StateFailed:
                continue  # it fails on this path too, and so calls nothing
            sent = dict(value) if isinstance(value, dict) else value
            if field == "Arguments" and name == "AskCaller":
                found |= {name} if sent.pop("TaskToken") == TOKEN else set()
            assert TOKEN not in json.dumps(sent), (name, field)
    assert found == {"AskCaller"}


def test_every_variable_has_a_value_where_a_state_reads_it() -> None:
    """Step Functions fails an expression with a variable that no state has assigned."""
    read = {name: mentioned(state.fields) for name, state in STATES.items()}
    for name, variables in _with_caller():
        if STATES[name].kind != "Choice":  # a Choice evaluates no rule after the one that applies
            assert not read[name] - variables.keys(), name
