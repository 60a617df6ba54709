"""The facts of the smoke test: a control for each verdict, and for each fact an answer that must count as different."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from dev.smoke.check_catalogue import BY_NAME, CHECKS
from dev.smoke.check_context import CheckContext
from dev.smoke.check_results import Failed, NotShown, Skipped
from dev.smoke.facts import Fact, Verdict, _agrees, ask_all, refusal_of
from dev.smoke.own_resources import chain
from dev.smoke.smoke_report import LONGEST_TEXT, mask

DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "CreateRole")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://states")


def _context(local: bool = False) -> Any:
    return SimpleNamespace(
        stack=SimpleNamespace(local=local), answers=[], say=lambda _line: None, step=lambda: None, stopped=Event()
    )


def _fact(ask: Callable[[CheckContext], Any] | None, name: str = "it", **fields: Any) -> Fact:
    return Fact(name, "Is it?", "yes", "change it", ask, lambda answer: answer == "yes", **fields)


def _raise(error: Exception) -> Callable[[CheckContext], Any]:
    def ask(_context: CheckContext) -> Any:
        raise error

    return ask


def test_facts_that_are_all_as_assumed_pass() -> None:
    context = _context()
    assert ask_all([_fact(lambda _: "yes"), _fact(lambda _: "yes")])(context) == "2 as assumed"
    assert [(each.verdict, each.answer) for each in context.answers] == [(Verdict.AS_ASSUMED, "yes")] * 2


def test_one_different_answer_fails_the_check_and_the_others_are_still_asked() -> None:
    context = _context()
    with pytest.raises(Failed, match=r"1 as assumed; 1 different \(first\); 1 could not be shown \(manual\)"):
        ask_all([_fact(lambda _: "no", "first"), _fact(lambda _: "yes"), _fact(None, "manual", manually="look")])(
            context
        )
    assert [(each.verdict, each.answer, each.means) for each in context.answers] == [
        (Verdict.DIFFERENT, "no", "change it"),
        (Verdict.AS_ASSUMED, "yes", ""),
        (Verdict.NOT_SHOWN, None, "only manually: look"),
    ]


@pytest.mark.parametrize("error", [DENIED, UNREACHABLE, NotShown("no run"), Skipped("no worker"), Failed("too late")])
def test_a_question_without_an_answer_could_not_be_shown_and_states_why(error: Exception) -> None:
    context = _context()
    with pytest.raises(NotShown, match="1 as assumed; 1 could not be shown"):
        ask_all([_fact(_raise(error)), _fact(lambda _: "yes")])(context)
    assert (context.answers[0].verdict, context.answers[0].means) == (Verdict.NOT_SHOWN, str(error))


def test_an_answer_of_another_form_is_different_and_an_error_of_this_program_is_not() -> None:
    context = _context()
    odd = Fact("odd", "Is it?", "yes", "change it", lambda _: {}, lambda answer: answer["missing"] == 1)
    broken = _fact(_raise(RuntimeError("a mistake")))
    with pytest.raises(Failed):
        ask_all([odd, broken])(context)
    assert [(each.verdict, each.means) for each in context.answers] == [
        (Verdict.DIFFERENT, "change it"),
        (Verdict.NOT_SHOWN, "unexpected error: RuntimeError: a mistake"),
    ]


def test_what_the_embedded_aws_cannot_show_is_not_asked_there_and_not_passed() -> None:
    fact = _fact(lambda _: "yes", not_here="it has none")
    context = _context(local=True)
    with pytest.raises(NotShown, match="1 not tried here"):
        ask_all([fact])(context)
    assert context.answers[0].means == "it has none"
    assert ask_all([fact])(_context(local=False)) == "1 as assumed"


def test_after_an_interrupt_nothing_more_is_asked() -> None:
    context = _context()
    context.stopped.set()
    with pytest.raises(Skipped, match="interrupted"):
        ask_all([_fact(lambda _: pytest.fail("it asked"))])(context)


def test_a_refused_set_up_is_tried_once_and_refuses_each_of_its_facts() -> None:
    made = []

    def set_up(context: CheckContext) -> str:
        made.append(context)
        raise DENIED

    context: Any = SimpleNamespace(_shared={})
    for _ in range(2):
        with pytest.raises(ClientError, match="AccessDenied"):
            CheckContext.once(context, set_up)
    assert made == [context]


def test_a_refusal_is_an_answer() -> None:
    assert refusal_of(lambda: _raise(DENIED)(_context())) == {"error": "AccessDeniedException", "message": "no"}
    assert refusal_of(lambda: None) == {}


def test_a_chain_keeps_what_a_state_calls_and_replaces_what_it_catches() -> None:
    state = {
        "Type": "Task",
        "Resource": "r",
        "Arguments": {"A": 1},
        "Retry": [{"ErrorEquals": ["States.ALL"]}],
        "Catch": [{"ErrorEquals": ["X"], "Next": "KeepRequest"}],
        "Next": "ReleaseSlot",
    }
    states = chain({"First": state, "Second": state})["States"]
    assert {name: each.get("Next") for name, each in states.items()} == {
        "Begin": "First",
        "First": "Second",
        "Second": "Done",
        "Done": None,
    }
    assert states["First"]["Arguments"] == {"A": 1}
    assert "Retry" not in states["First"]
    assert "KeepRequest" not in json.dumps(states)


# For each fact an answer that AWS might give and that the product does not assume.
DIFFERENT: dict[str, Any] = {
    "run-that-did-not-succeed": {"status": "FAILED", "error": "States.QueryEvaluationError"},
    "redriven-execution": {"status": "FAILED", "error": "States.Runtime"},
    "missing-task-token": {"status": "SUCCEEDED", "nextState": "AskCaller", "variables": {"caller": "UNKNOWN"}},
    "computed-seconds": {"status": "FAILED", "error": "States.Runtime"},
    "computed-timeout": {"status": "FAILED", "error": "States.QueryEvaluationError"},
    "deduplication-id": {"sent": "p-1", "expected": "p-2"},
    "numbers-kept": {"digits_15": "1.23456789012345e14"},
    "numbers-returned": {"digits_15": "1.23456789012345e14"},
    "longer-numbers-kept": {"digits_16": "1234567890123456"},
    "largest-answer": {"status": "FAILED", "length": 0, "error": "States.DataLimitExceeded"},
    "variable-too-large": {"status": "FAILED", "error": "States.Runtime"},
    "condition-refused": {"Error": "DynamoDb.ConditionalCheckFailedException"},
    "heartbeat-of-invalid-token": {"Error": "Sfn.SfnException"},
    "answer-to-invalid-token": {"Error": "Sfn.InvalidToken"},
    "wake-by-invalid-handle": {"Error": "Sqs.SqsException", "Cause": "invalid"},
    "child-not-found": {"Error": "StepFunctions.ExecutionDoesNotExist"},
    "name-taken": {"Error": "StepFunctions.ExecutionAlreadyExists"},
    "stop-of-closed-execution": {"Error": "States.Runtime"},
    "numbers-of-a-child": {"digits_15": "123456789012345", "digits_16": "1234567890123460"},
    "data-limit-of-a-child": {"States.DataLimitExceeded": "not caught: States.DataLimitExceeded"},
    "data-limit-of-a-read": {"States.DataLimitExceeded": "not caught: States.DataLimitExceeded"},
    "data-limit-by-states-all": {"run, States.ALL": "not caught: States.DataLimitExceeded"},
    "order-of-closed-executions": ["quick", "slow"],
    "event-failed": {"status": "FAILED", "executionArn": "a"},
    "event-timed-out": {"status": "TIMED_OUT", "executionArn": "a"},
    "event-aborted": {"status": "ABORTED", "executionArn": "a"},
    "redriven-map": {"status": "SUCCEEDED", "output": [{"item": 1, "redrives": 1}, {"item": 2, "redrives": 1}]},
    "token-length": {"characters": 1600, "has_space": False},
    "heartbeat-without-heartbeat-seconds": {"error": "TaskTimedOut", "message": ""},
    "permitted-caller": {"caller": "waits"},
    "other-caller": {"AnswerSuccess": {"result": "{}"}},
    "caller-in-a-distributed-map": {"caller": "waits"},
    "updated-new-of-a-nested-path": {"holders": {"M": {"smoke": {"M": {}}}}, "run_settings": {"M": {}}},
    "set-with-remove": {"slots_in_use": {"N": "1"}, "holders": {"M": {}}},
    "size-of-a-number": {"error": "ValidationException", "message": ""},
    "expired-handle": {},
    "older-handle": {"received_again": True},
    "visibility-after-batch-item-failures": {"receives before": 1, "receives after": 2},
    "redriven-message": {"id kept by the redrive": False, "body kept": True, "attributes kept": {}},
    "cause-of-a-failed-run": {
        "error": "States.TaskFailed",
        "state": "FAILED",
        "keys": ["Id", "Arguments"],
        "reason": "r",
    },
    "too-many-runs": {"Error": "Glue.AWSGlueException"},
    "order-of-runs": ["2026-11-24 00:00:01+00:00", "2026-11-24 00:00:02+00:00"],
    "schedule-twice": {"error": "ValidationException", "message": ""},
    "schedule-in-the-past": {},
    "fill-without-data": {"values": [], "status": "Complete"},
}
FACTS = {fact.name: fact for check in CHECKS for fact in check.facts}


def test_every_fact_that_is_asked_has_a_different_answer_and_a_unique_name() -> None:
    assert sorted(DIFFERENT) == sorted(name for name, fact in FACTS.items() if fact.ask)
    assert len(FACTS) == sum(len(check.facts) for check in CHECKS)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_different_answer_is_not_taken_for_the_assumed_one(name: str) -> None:
    assert not _agrees(FACTS[name], DIFFERENT[name])


@pytest.mark.parametrize("fact", FACTS.values(), ids=lambda fact: fact.name)
def test_every_fact_states_what_depends_on_it_or_how_to_show_it(fact: Fact) -> None:
    assert fact.asks.endswith("?")
    assert fact.expects
    assert fact.depends
    assert bool(fact.manually) == (fact.ask is None)


def test_what_only_a_person_can_show_is_a_check_that_costs_nothing() -> None:
    assert all(fact.manually for fact in BY_NAME["manual"].facts)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("arn:aws:states:eu-west-1:123456789012:execution:w:n", "arn:aws:states:eu-west-1:<account>:execution:w:n"),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", "https://sqs.eu-west-1.amazonaws.com/<account>/q"),
        ("https://bucket/key?X-Amz-Signature=abc&b=1 next", "https://bucket/key?<query> next"),
        ("token " + "AQCw" * 160 + "=", "token <641 characters>"),
        ("key AKIA" + "A" * 16, "key <access key>"),
        ("1234567890123456 and 1795478799049", "1234567890123456 and 1795478799049"),
        ("a " * LONGEST_TEXT, "a " * (LONGEST_TEXT // 2) + f"… ({2 * LONGEST_TEXT} characters)"),
    ],
)
def test_accounts_tokens_keys_and_signatures_are_masked_and_numbers_are_not(text: str, masked: str) -> None:
    assert mask({"answer": [text, 1]}) == {"answer": [masked, 1]}
