"""The facts of the smoke test: a control for each verdict, and for each fact an answer that must count as different."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from dev.smoke.check_catalogue import CHECKS
from dev.smoke.facts import Fact, Failed, NotShown, Verdict, judged, refusal_of
from dev.smoke.workflow_checks import _check_log

DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "CreateRole")
THROTTLED = ClientError({"Error": {"Code": "Throttling", "Message": "no"}}, "CreateRole")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://states")
ARN = "arn:aws:states:us-east-1:123456789012:execution:workflow:p-r-1"
GROUP = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/vendedlogs/states/slotkeeper:*"


def _verdict(answer: Any, *, observed: bool = False, local: bool = False, **fields: Any) -> Verdict:
    """Of a fact with this answer or error. `observed`: the question judges by itself."""

    def ask(_context: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    agrees = None if observed else lambda given: given["it"] == "yes"
    context: Any = SimpleNamespace(stack=SimpleNamespace(local=local))
    return judged(Fact("it", "Is it?", "yes", "change it", ask, agrees, **fields), context).verdict


def test_an_answer_is_as_assumed_or_different_and_one_of_another_form_is_different() -> None:
    assert _verdict({"it": "yes"}) is Verdict.AS_ASSUMED
    assert [_verdict({"it": "no"}), _verdict({}), _verdict("it")] == [Verdict.DIFFERENT] * 3


@pytest.mark.parametrize("error", [DENIED, UNREACHABLE, NotShown("no worker"), Failed("too late"), RuntimeError("bug")])
def test_a_question_without_an_answer_could_not_be_shown(error: Exception) -> None:
    assert _verdict(error) is Verdict.NOT_SHOWN


@pytest.mark.parametrize("error", [THROTTLED, UNREACHABLE, Failed("too late"), RuntimeError("bug")])
def test_a_flow_that_does_not_end_as_assumed_is_different(error: Exception) -> None:
    assert _verdict(error, observed=True) is Verdict.DIFFERENT
    assert [_verdict(other, observed=True) for other in (DENIED, NotShown("no"))] == [Verdict.NOT_SHOWN] * 2


def test_what_the_embedded_aws_cannot_show_is_not_asked_there() -> None:
    assert _verdict(RuntimeError("asked"), observed=True, local=True, not_here="it has none") is Verdict.NOT_TRIED
    assert _verdict({"it": "yes"}, not_here="it has none") is Verdict.AS_ASSUMED


def test_a_refusal_is_an_answer_and_a_missing_permission_is_not() -> None:
    def refuse(error: Exception) -> Any:
        raise error

    assert refusal_of(lambda: refuse(THROTTLED)) == {"error": "Throttling", "message": "no"}
    assert refusal_of(lambda: None) == {}
    with pytest.raises(ClientError, match="AccessDenied"):
        refusal_of(lambda: refuse(DENIED))


# For each fact that compares, an answer that AWS might give and that the product does not assume.
DIFFERENT: dict[str, Any] = {
    "run-that-did-not-succeed": {"status": "FAILED", "error": "States.QueryEvaluationError"},
    "missing-task-token": {"status": "SUCCEEDED", "nextState": "AskCaller", "variables": {"caller": "UNKNOWN"}},
    "chain-of-rings": {"late": [0.1, 59.0], "recursion": "Allow"},
    "condition-refused": ["DynamoDB.ConditionalCheckFailedException", "DynamoDb.ConditionalCheckFailedException"],
    "send-by-the-workflow": {"Error": "SQS.AccessDeniedException"},
    "name-taken": {"Error": "StepFunctions.ExecutionAlreadyExists"},
    "numbers-of-a-child": {"digits_15": "123456789012345", "digits_16": "1234567890123460"},
    "data-limit-of-a-child": {"uncaught": "States.DataLimitExceeded"},
    "event-of-each-end": {"SUCCEEDED": 0.4, "FAILED": 0.5, "TIMED_OUT": 0.4},
    "answer": {"late": 58.1, "answer": {"JobRunState": "SUCCEEDED"}},
    "answer-of-an-abort": {"error": "ABORTED", "run": "RUNNING", "holders": []},
    "token-length": {"characters": 1600, "has_space": False},
    "permitted-caller": {"caller": "SUCCEEDED", "AskCaller": {"Error": "Sfn.TaskTimedOutException"}},
    "other-caller": {"Answer": {"result": "{}"}},
    "caller-in-a-distributed-map": {"caller": "waits"},
    "updated-new-of-a-nested-path": {"holders": {"M": {"smoke": {"M": {}}}}, "run_settings": {"M": {}}},
    "set-with-remove": {"slots_in_use": {"N": "1"}, "holders": {"M": {}}},
    "size-of-a-number": {"error": "ValidationException", "message": ""},
    "consistent-read-of-a-local-index": {"rows": 30, "stale": 1, "left": 15},
    "index-of-failures": 61.0,
    "refused-transaction": {"left": [], "expected": ["p-1"]},
    "transaction-conflict": {"none": 40, "ConditionalCheckFailedException": 1},
    "delay-of-a-message": {"immediate": 3.1, "delayed": 0.1},
    "cause-of-a-failed-run": {
        "error": "States.TaskFailed",
        "JobRunState": "FAILED",
        "keys": ["Id", "Arguments"],
        "ErrorMessage": "m",
    },
    "too-many-runs": {"Error": "Glue.AWSGlueException"},
    "order-of-runs": ["2026-11-24 00:00:01+00:00", "2026-11-24 00:00:02+00:00"],
    "your-key": {"stack": "arn:aws:kms:key/1", "workflow": "", "schedule": "arn:aws:kms:key/1"},
    "schedule-twice": {"error": "ValidationException", "message": ""},
    "schedule-in-the-past": {},
    "fill-without-data": {"values": [], "status": "Complete"},
}
FACTS = {fact.name: fact for check in CHECKS for fact in check.facts}


def test_every_fact_that_compares_has_a_different_answer_and_a_unique_name() -> None:
    assert sorted(DIFFERENT) == sorted(name for name, fact in FACTS.items() if fact.agrees)
    assert len(FACTS) == sum(len(check.facts) for check in CHECKS)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_different_answer_is_not_taken_for_the_assumed_one(name: str) -> None:
    assert not FACTS[name].agrees_with(DIFFERENT[name])


def _log(**details: str) -> Any:
    """The context of a check whose workflow's log has a failed task with these details."""
    logs = Mock()
    event = {"message": json.dumps({"execution_arn": ARN, "type": "TaskFailed", "details": details})}
    logs.get_paginator.return_value.paginate.return_value = [{"events": []}, {"events": [event]}]
    machine = {"loggingConfiguration": {"destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": GROUP}}]}}
    stack = SimpleNamespace(local=False, machine=machine, client=lambda _: logs)
    return SimpleNamespace(stack=stack, timings=SimpleNamespace(start=1.0), wait=lambda look, *_: look())


def test_the_workflows_log_must_name_the_error_that_an_alarm_counts() -> None:
    _check_log(_log(error="States.TaskFailed"), ARN)
    with pytest.raises(Failed, match="GlueRefusalAlarm cannot go off"):
        _check_log(_log(resource="startJobRun.sync"), ARN)
