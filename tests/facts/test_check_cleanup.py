"""A clean-up that AWS refuses: every failure is reported, and the process of a live run is kept."""

from __future__ import annotations

from itertools import chain, repeat
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.smoke import check_cleanup
from dev.smoke.check_context import CheckContext, RunMessages, Timings
from dev.smoke.stack_under_test import StackUnderTest

DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "BatchStopJobRun")
OUTPUTS = {
    "SlotTableName": "slots",
    "RequestTableName": "rows",
    "WorkflowArn": "arn:aws:states:us-east-1:1:stateMachine:w",
    "RequestDeadLetterQueueUrl": "dead",
    "WorkDeadLetterQueueUrl": "work",
}
NO_WAITS = Timings(hold=0, long=0, task_timeout=0, due=0, start=0.2, finish=0.2, poll=0.01)


def _denied(**_asked: Any) -> Any:
    raise DENIED


@pytest.fixture
def removed() -> list[str]:
    """The processes whose items were deleted."""
    return []


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, removed: list[str]) -> CheckContext:
    """A check with one process, an execution that has ended, and its Glue run that lives."""

    def delete_item(Key: Any, **_asked: Any) -> None:
        removed.append(Key["process_name"]["S"])

    no_rows = SimpleNamespace(paginate=lambda **_: [{"Items": []}])
    services = {
        "dynamodb": SimpleNamespace(delete_item=delete_item, get_paginator=lambda _: no_rows),
        "stepfunctions": SimpleNamespace(describe_execution=lambda **_: {"status": "FAILED"}),
        "glue": SimpleNamespace(batch_stop_job_run=lambda **_: None),
        "sqs": SimpleNamespace(receive_message=lambda **_: {}),
    }
    stack = StackUnderTest("mine", "us-east-1", False, services.__getitem__)
    vars(stack).update(outputs=OUTPUTS, sample_job="job")
    made = CheckContext(
        stack, NO_WAITS, "smoke-1", "stopped", RunMessages(services["sqs"], "smoke-1"), lambda _line: None, Event()
    )
    made.processes.append("smoke-1-stopped")
    made.expect("smoke-1-stopped-x")
    run = {"Id": "jr_1", "JobRunState": "RUNNING"}
    monkeypatch.setattr(CheckContext, "glue_run", lambda self, _name: run if self.job else None)
    return made


@pytest.mark.parametrize(
    ("service", "answers", "reported"),
    [
        ("glue", {"batch_stop_job_run": _denied}, "Glue runs: An error occurred (AccessDeniedException)"),
        ("glue", {}, "Glue runs: waited 0 s for them to end"),
        (
            "stepfunctions",
            {"describe_execution": lambda **_: {"status": "RUNNING"}, "stop_execution": _denied},
            "executions: An error occurred (AccessDeniedException)",
        ),
    ],
)
def test_what_cannot_be_ended_is_reported_and_keeps_its_process(
    context: CheckContext, removed: list[str], service: str, answers: dict[str, Any], reported: str
) -> None:
    vars(context.stack.client(service)).update(answers)
    left = check_cleanup.clean_up(context)
    assert left[0].startswith(reported)
    assert "slotkeeper process remove smoke-1-stopped" in left[-1]
    assert removed == []


def test_other_resources_are_removed_newest_first_despite_failures(
    context: CheckContext, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution closes before it is stopped."""
    monkeypatch.setattr(CheckContext, "glue_run", lambda _self, _name: None)
    statuses = chain(["RUNNING"], repeat("SUCCEEDED"))
    closing = {"describe_execution": lambda **_: {"status": next(statuses)}, "stop_execution": _denied}
    vars(context.stack.client("stepfunctions")).update(closing)
    context.undo += [("schedule s", lambda: removed.append("schedule")), ("state machine m", _denied)]
    (left,) = check_cleanup.clean_up(context)
    assert left.startswith("state machine m: ")
    assert removed == ["schedule", "smoke-1-stopped"]


def test_a_check_without_a_process_is_cleaned_up_in_a_stack_without_the_sample_job(context: CheckContext) -> None:
    context.processes.clear()
    vars(context.stack)["sample_job"] = None
    assert check_cleanup.clean_up(context) == []
