"""The smoke test's check of the workflow's log: it contains the error that GlueRefusalAlarm counts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dev.smoke.check_results import Failed
from dev.smoke.ended_workflow_checks import check_log

ARN = "arn:aws:states:us-east-1:123456789012:execution:workflow:p-r-1"
GROUP = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/vendedlogs/states/slotkeeper:*"


def context(details: dict[str, str], local: bool = False) -> Any:
    logs = Mock()
    event = {"message": json.dumps({"execution_arn": ARN, "type": "TaskFailed", "details": details})}
    logs.get_paginator.return_value.paginate.return_value = [{"events": []}, {"events": [event]}]
    machine = {"loggingConfiguration": {"destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": GROUP}}]}}
    stack = SimpleNamespace(local=local, machine=machine, client=lambda _: logs)
    return SimpleNamespace(stack=stack, timings=SimpleNamespace(start=1.0), wait=lambda look, *_: look(), logs=logs)


def test_a_log_that_names_the_error_passes() -> None:
    made = context({"error": "States.TaskFailed", "cause": "stopped"})
    check_log(made, ARN)
    asked = made.logs.get_paginator.return_value.paginate.call_args.kwargs
    assert asked["logGroupName"] == "/aws/vendedlogs/states/slotkeeper"
    assert ARN in asked["filterPattern"]


def test_a_log_without_the_error_fails() -> None:
    with pytest.raises(Failed, match="GlueRefusalAlarm cannot go off"):
        check_log(context({"resource": "startJobRun.sync"}), ARN)


def test_the_embedded_aws_has_no_such_log() -> None:
    made = context({}, local=True)
    check_log(made, ARN)
    assert not made.logs.mock_calls
