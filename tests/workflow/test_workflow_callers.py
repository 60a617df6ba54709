"""Guarantees of the workflow for a request whose caller, a task of another execution, waits for the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest

from slotkeeper.slots.executions import ANSWER_FAILED, SUCCEEDED_CAUSE
from tests.workflow.interpreter import STATES, StateFailed, Variables, mentioned
from tests.workflow.walks import MACHINE, TOKEN, Path, Scenario, all_walks, redriven

_READ = {name: mentioned(state.fields) for name, state in STATES.items()}
ANSWERS = ("AnswerSuccess", "AnswerFailure")
WORK = ("RunGlueJob", "RunStateMachine")
WITH_TOKEN = ("AskCaller", "AnswerSuccess", "AnswerFailure")


def _walks(redrives: int = 0) -> tuple[Path, ...]:
    return all_walks(redrives, waits=True) + all_walks(redrives, MACHINE, waits=True)


def _distinct(paths: Iterable[Path]) -> Iterator[tuple[str, Variables]]:
    """Each state with its variables, once."""
    seen = set[tuple[str, int]]()
    for path in paths:
        for name, variables in zip(path.names, path.entered, strict=True):
            if (name, id(variables)) not in seen:
                seen.add((name, id(variables)))
                yield name, variables


def _entered() -> Iterator[tuple[str, Variables]]:
    """Each state with its variables on the paths with a caller, also of executions that are redriven in any state."""
    yield from _distinct(_walks() + _walks(redrives=1) + tuple(after for _, after in redriven(MACHINE, waits=True)))


def test_every_path_answers_the_caller_or_leaves_the_answer_to_the_next_attempt_or_to_the_janitor() -> None:
    """The next attempt answers for a returned request, and the janitor where the slot or AnswerFailed is left to it."""
    for walk in _walks() + _walks(redrives=1):
        caller = walk.variables.get("caller")
        ways = {
            "answered": bool(set(ANSWERS) & set(walk.names)),
            "returned": walk.names[-1] == "SlotLost",
            "janitor": bool({"LeaveSlotToJanitor", "ChildTooLarge", "OutcomeNotRecorded"} & set(walk.names)),
            "gone": caller == "GONE" and "LeaveSlotToJanitor" not in walk.names,
        }
        assert sum(ways.values()) == 1, (ways, walk.names)


def test_an_answer_has_the_outcome_of_the_request() -> None:
    for walk in _walks() + _walks(redrives=1):
        if "AnswerSuccess" in walk.names:
            assert walk.variables["run_state"] == "SUCCEEDED"
            assert "KeepRequest" not in walk.names
        if "AnswerFailure" in walk.names:
            assert walk.variables["run_state"] not in ("SUCCEEDED", "UNKNOWN")
            assert walk.variables["outcome"] == "KEPT"
        if walk.status == "SUCCEEDED":
            assert "AnswerSuccess" in walk.names


def test_work_starts_only_after_the_caller_was_asked() -> None:
    for walk in _walks():
        for work in set(WORK) & set(walk.names):
            before = walk.names[: walk.names.index(work)]
            assert before == ("ConfirmSlot", "ChooseWork", "ReadToken", "AskCaller", "ChooseWork")
    assert not [walk for walk in all_walks() + all_walks(target=MACHINE) if "AskCaller" in walk.names]


def test_nothing_starts_for_a_caller_that_is_gone_and_its_request_is_kept() -> None:
    gone = [walk for walk in _walks() if "CallerGone" in walk.names]
    assert {walk.variables["caller_error"] for walk in gone} == {
        "Sfn.TaskTimedOutException",
        "its row has no task token",
    }
    for walk in gone:
        assert not {*WORK, *ANSWERS} & set(walk.names), walk.names
        assert "CountCallerGone" in walk.names
        assert walk.variables["failure"]["error"] == "CallerGone"
        assert "KeepRequest" in walk.names


def test_an_error_that_does_not_show_that_the_caller_is_gone_does_not_stop_its_work() -> None:
    """For example a throttle, or a role that may not call SendTaskHeartbeat."""
    for error in ("Sfn.SfnException", "States.Timeout", "Sfn.SdkClientException"):
        following, variables = STATES["AskCaller"].catch(StateFailed(error, "said so"), {}, {})
        assert (following, variables["caller"]) == ("ChooseWork", "WAITS")


def test_the_slot_of_a_caller_whose_token_could_not_be_read_is_left_to_the_janitor() -> None:
    unread = [walk for walk in _walks() if "ReadToken" in walk.names and walk.after("ReadToken")[0] == "KeepRequest"]
    assert unread
    for walk in unread:
        assert "LeaveSlotToJanitor" in walk.names
        assert not {*WORK, *ANSWERS, "CallerGone"} & set(walk.names)


def test_the_slot_is_left_to_the_janitor_if_only_it_can_keep_the_request_of_a_waiting_caller() -> None:
    """RequestNotKept has no answer yet."""
    for walk in _walks():
        if walk.variables.get("outcome") == "NOT_KEPT" and walk.variables["caller"] == "WAITS":
            assert "LeaveSlotToJanitor" in walk.names
            assert walk.names[-1] == "RequestNotKept"
    without = [walk for walk in all_walks() if walk.variables.get("outcome") == "NOT_KEPT"]
    assert any("ReleaseSlot" in walk.names for walk in without)


def test_an_answer_that_could_not_be_given_ends_the_execution_after_its_request_is_accounted_for() -> None:
    failed = [walk for walk in _walks() if walk.names[-1] == ANSWER_FAILED]
    assert {walk.names[-2] for walk in failed} == set(ANSWERS)
    for walk in failed:
        assert walk.variables["run_state"] == "SUCCEEDED" or walk.variables["outcome"] == "KEPT"
        succeeded = walk.variables["run_state"] == "SUCCEEDED"
        assert walk.names[-2] == ("AnswerSuccess" if succeeded else "AnswerFailure")
        # The janitor publishes the event of a success, which the workflow would have published after the answer.
        assert STATES["AnswerFailed"].value("Cause", {}, walk.variables).startswith(SUCCEEDED_CAUSE) == succeeded


@pytest.mark.parametrize("state", ANSWERS)
def test_a_spent_token_is_counted_and_does_not_change_the_end(state: str) -> None:
    for error in ("Sfn.TaskTimedOutException", "Sfn.TaskDoesNotExistException", "Sfn.InvalidTokenException"):
        assert STATES[state].retry_after(error, {}) is None
        following, _ = STATES[state].catch(StateFailed(error, "spent"), {}, {})
        assert following == "CountSpentAnswer"
    assert STATES[state].retry_after("Sfn.SfnException", {}) is not None
    spent = [walk for walk in _walks() if state in walk.names and "CountSpentAnswer" in walk.names]
    assert {walk.status for walk in spent} == {"SUCCEEDED" if state == "AnswerSuccess" else "FAILED"}
    assert not {walk.names[-1] for walk in spent} - {"PublishSuccessEvent", "RequestSucceeded", "RequestFailed"}


def test_the_token_is_only_where_the_caller_is_asked_or_answered() -> None:
    found, context = set[str](), Scenario(0, waits=True).context
    for name, variables in _entered():
        assert TOKEN not in str({**variables, "task_token": ""}), name
        for field in {"Arguments", "Cause", "Error", "Output"} & STATES[name].fields.keys():
            try:
                value = STATES[name].value(field, context, variables)
            except StateFailed:
                continue  # it fails on this path too, and so calls nothing
            sent = dict(value) if isinstance(value, dict) else value
            if field == "Arguments" and name in WITH_TOKEN:
                found |= {name} if sent.pop("TaskToken") == TOKEN else set()
            assert TOKEN not in json.dumps(sent), (name, field)
    assert found == {*WITH_TOKEN}


def test_every_variable_has_a_value_where_a_state_reads_it() -> None:
    """Step Functions fails an expression with a variable that no state has assigned."""
    for name, variables in _entered():
        if STATES[name].kind != "Choice":  # a Choice evaluates no rule after the one that applies
            assert not _READ[name] - variables.keys(), name


def test_a_redriven_execution_leaves_the_answer_to_the_next_attempt() -> None:
    returned = [walk for walk in _walks(redrives=1) if walk.names[-1] == "SlotLost" and "AskCaller" in walk.names]
    assert returned
    for walk in returned:
        assert not set(ANSWERS) & set(walk.names)
