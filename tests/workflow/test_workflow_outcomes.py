"""The outcome of a request's work: recorded in its row, before its slot is released and the doorbell is rung."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.outcomes import MAX_CAUSE, Outcomes
from slotkeeper.slots.request_table import State
from slotkeeper.slots.settlement import WITH_FAILURE, Failed, Succeeded, decide
from tests.simulation.account.in_process_aws import InProcessAws
from tests.simulation.account.quick_clients import shared_client
from tests.workflow.case import CONTEXT, ENTERED, MANUAL_INPUTS, of_input
from tests.workflow.interpreter import ME, STATES, StateFailed
from tests.workflow.test_paths import every_walk
from tests.workflow.walks import Path

TO_THE_RELEASE = ("RecordOutcome", "ReleaseSlot", "Ring", "ChooseOutcome")
WITH_AN_OUTCOME: tuple[State, ...] = ("QUEUED", "STARTED", "FAILED")
FAILURE = {"error": "States.TaskFailed", "cause": "x" * (MAX_CAUSE + 1)}
REFUSED = "DynamoDB.ConditionalCheckFailedException"


@pytest.fixture(autouse=True)
def _region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


class _Account(InProcessAws):
    """An account whose RequestTable has one row, in this state."""

    def __init__(self, state: State | None) -> None:
        super().__init__()
        self.dynamodb = shared_client("dynamodb")
        self.answer_calls_of(self.dynamodb)
        if state:
            texts = {"process_name": "p", "execution": ME, "state": state, "body": "{}", "task_token": "t"}
            texts |= {"place": "1#", "placed": "1#"} if state == "QUEUED" else {}
            texts |= {"code": "States.Timeout", "cause": "late"} if state == "FAILED" else {}
            numbers = {"open": {"N": "1"}} | ({"deadline": {"N": "2"}} if state == "QUEUED" else {})
            numbers |= {"failed": {"N": "3"}, "expires": {"N": "4"}} if state == "FAILED" else {}
            self.tables.put("requests", {name: {"S": text} for name, text in texts.items()} | numbers)

    @property
    def row(self) -> dict[str, Any]:
        return self.tables.item("requests", f"p\n{ME}")


def _recorded(run_state: str, row_state: State | None) -> tuple[bool, dict[str, Any]]:
    """Whether the workflow's write was accepted, and the row after it."""
    known = {"run_state": run_state, "failure": FAILURE, "caller": "WAITS", "answer": "[7]"}
    arguments = STATES["RecordOutcome"].value("Arguments", CONTEXT, known)
    account = _Account(row_state)
    try:
        account.dynamodb.update_item(**arguments | {"TableName": "requests"})
    except account.dynamodb.exceptions.ConditionalCheckFailedException:
        return False, account.row
    return True, account.row


def _at(walk: Path, state: str) -> dict[str, Any]:
    """The variables at the first entry of a state."""
    return walk.entered[walk.names.index(state)]


# What is written


@pytest.mark.parametrize("row_state", [*get_args(State), None])
def test_only_a_row_without_another_end_has_its_outcome_recorded(row_state: State | None) -> None:
    """A redriven execution may find that work which was recorded as failed has succeeded after all."""
    for run_state in ("SUCCEEDED", "FAILED"):
        is_written, row = _recorded(run_state, row_state)
        assert is_written == (row_state in WITH_AN_OUTCOME)
        assert is_written or row == _Account(row_state).row


@pytest.mark.parametrize("row_state", WITH_AN_OUTCOME)
def test_an_outcome_takes_the_request_out_of_the_queue_and_is_to_be_published(row_state: State) -> None:
    _, succeeded = _recorded("SUCCEEDED", row_state)
    _, failed = _recorded("NOT_FOUND", row_state)
    assert (succeeded["state"], failed["state"]) == ({"S": "SUCCEEDED"}, {"S": "FAILED"})
    for row in (succeeded, failed):
        assert not {"place", "deadline", "expires"} & row.keys()
        assert (row["ended"], row["open"]) == ({"N": str(ENTERED // 1000)}, {"N": str(-ENTERED // 1000)})
        assert row["task_token"] == {"S": "t"}  # its caller has no answer yet
    assert not {"body", "code", "cause", "failed"} & succeeded.keys()
    assert succeeded["answer"] == {"S": "[7]"}
    assert (failed["code"]["S"], failed["cause"]["S"]) == ("States.TaskFailed", "x" * MAX_CAUSE)
    assert failed["failed"] == failed["ended"]
    assert failed["body"] == {"S": "{}"}  # for the next attempt


@pytest.mark.parametrize("row_state", [*get_args(State), None])
def test_the_layer_records_as_the_workflow_does_and_replaces_no_failure_by_another(row_state: State | None) -> None:
    """The workflow has recorded the error of the work. What the settlement knows is the error of the execution."""
    for run_state in ("SUCCEEDED", "FAILED"):
        account = _Account(row_state)
        outcomes = Outcomes(account.dynamodb, "requests")
        if run_state == "SUCCEEDED":
            is_written = outcomes.succeeded("p", ME, ENTERED / 1000, "[7]")
        else:
            is_written = outcomes.failed("p", ME, ENTERED / 1000, FAILURE["error"], FAILURE["cause"])
        as_workflow = _recorded(run_state, row_state)
        is_kept = row_state == run_state == "FAILED"
        assert (is_written, account.row) == ((False, _Account(row_state).row) if is_kept else as_workflow)


# When it is written


def test_an_outcome_is_recorded_before_the_release_and_the_doorbell_is_rung_after_it() -> None:
    """A request without an outcome, whose start is not marked, would be granted a slot again after the release. A ring
    before the release would find no free slot. A redriven execution started no work: its next attempt has an outcome.
    """
    for walk in (*every_walk(), *every_walk(redrives=1)):
        if "ReleaseSlot" not in walk.names:
            assert "Ring" not in walk.names, walk.names
        elif walk.names[-1] == "SlotLost":
            assert walk.names[-4:-1] == TO_THE_RELEASE[1:], walk.names
        else:
            at = walk.names.index("RecordOutcome")
            assert walk.names[at : at + 4] == TO_THE_RELEASE, walk.names


def test_the_outcome_that_is_recorded_is_that_of_the_execution() -> None:
    for walk in (*every_walk(), *every_walk(redrives=1)):
        if "RecordOutcome" in walk.names and walk.names[-1] != "OutcomeNotRecorded":
            assert (_at(walk, "RecordOutcome")["run_state"] == "SUCCEEDED") == (walk.status == "SUCCEEDED"), walk.names


@pytest.mark.parametrize(
    ("state", "error", "following"),
    [
        # The request may be redriven already, and a manually started execution has no row. The janitor would find no
        # reason to keep such a slot, but would free it only after its checks.
        ("RecordOutcome", REFUSED, "ReleaseSlot"),
        # The holder is what lets the janitor find the request, and what keeps it from a second start.
        ("RecordOutcome", "DynamoDB.TransactionConflictException", "OutcomeNotRecorded"),
        ("RecordOutcome", "States.Timeout", "OutcomeNotRecorded"),
        # The janitor frees the slot, and dispatches each process with queued requests once a minute.
        ("ReleaseSlot", REFUSED, "Ring"),
        ("ReleaseSlot", "States.Timeout", "Ring"),
        ("Ring", "States.Timeout", "ChooseOutcome"),
    ],
)
def test_a_slot_stays_taken_only_if_its_outcome_is_not_recorded(state: str, error: str, following: str) -> None:
    assert STATES[state].catch(StateFailed(error, "no answer"), {}, {}) == (following, {})


def test_the_settlement_reads_the_outcome_that_the_workflow_could_not_record() -> None:
    """If its work cannot be found any more: otherwise the work's own status decides."""
    ends = [walk for walk in every_walk() if walk.end.get("Error") in WITH_FAILURE]
    assert {walk.names[-1] for walk in ends} == {"WorkIsUnknown", "OutcomeNotRecorded", "RequestFailed"}
    for walk in ends:
        cause = STATES[walk.names[-1]].value("Cause", CONTEXT, walk.variables)
        execution = Execution(ME, "FAILED", 1.0, error=walk.end["Error"], cause=cause)
        failure = walk.variables["failure"]
        has_succeeded = walk.variables["run_state"] == "SUCCEEDED"
        assert decide(execution, None) == (Succeeded() if has_succeeded else Failed(failure["error"], failure["cause"]))


@pytest.mark.parametrize("given", MANUAL_INPUTS[:4])
def test_a_manually_started_execution_that_names_no_process_writes_nothing(given: Any) -> None:
    known = {"run_state": "NOT_STARTED", "failure": FAILURE, "caller": "UNKNOWN", "answer": ""}
    for state in ("RecordOutcome", "ReleaseSlot", "Ring"):
        with pytest.raises(StateFailed, match="QueryEvaluationError"):
            STATES[state].value("Arguments", of_input(given), known)
