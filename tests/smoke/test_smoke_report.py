"""The smoke test's report, and its handling of messages of others."""

from __future__ import annotations

import io
from typing import Any

import boto3
import pytest
from moto import mock_aws
from rich.console import Console

from dev.smoke import smoke_report
from dev.smoke.check_results import CheckResult, Status
from dev.smoke.costs import Item
from dev.smoke.run_messages import RunMessages
from dev.smoke.stack_under_test import StackUnderTest

ITEMS = [Item("Glue, 1 Python shell runs", "60 s x 1/16 DPU x $0.44 an hour", 0.0004583)]


def _made(*results: CheckResult, local: bool = False) -> dict[str, Any]:
    return smoke_report.make(
        StackUnderTest("mine", "eu-north-1", local, lambda _service: None), "smoke-1", results, ITEMS
    )


PASSED = CheckResult("wake", Status.PASSED, "0.5 s | so", 12.34)
FAILED = CheckResult("redrive", Status.FAILED, "it started a run", 1.0)
LEFT = CheckResult("groups", Status.PASSED, "side by side", 1.0, ["process smoke-1-groups-a: denied"])
SKIPPED = CheckResult("stopped", Status.SKIPPED, "a job of your own", 0.1)
NOT_SHOWN = CheckResult("timeout", Status.NOT_SHOWN, "AWS has stopped it", 0.1)


@pytest.mark.parametrize(
    ("results", "ok"), [([PASSED, SKIPPED, NOT_SHOWN], True), ([PASSED, FAILED], False), ([PASSED, LEFT], False)]
)
def test_only_a_failure_or_a_remaining_resource_fails_the_run(results: list[CheckResult], ok: bool) -> None:
    assert _made(*results)["ok"] is ok


def test_the_embedded_aws_costs_nothing_and_the_report_names_its_limits() -> None:
    made = _made(PASSED, local=True)
    assert (made["aws"], made["cost"]["dollars"], made["cost"]["items"]) == ("embedded", 0.0, [])
    assert made["checks"][0]["cannot_be_shown_here"] in smoke_report.markdown(made)
    output = io.StringIO()
    smoke_report.show(Console(file=output, width=140), made)
    assert "cannot be shown here" in output.getvalue()


def test_messages_of_others_stay_and_its_own_are_received() -> None:
    with mock_aws():
        sqs = boto3.client("sqs", region_name="us-east-1")
        url = sqs.create_queue(QueueName="failed")["QueueUrl"]
        for body in ("theirs", '{"process": "smoke-1-stopped"}', "theirs too", '{"process": "smoke-2-stopped"}'):
            attributes = {"error": {"DataType": "String", "StringValue": body}}
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
        messages = RunMessages(sqs, "smoke-1")
        collected = [messages.collect(url) for _ in range(2)]
        assert [[message.attributes["error"] for message in each] for each in collected] == [
            ['{"process": "smoke-1-stopped"}']
        ] * 2
        left = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert sorted(message["Body"] for message in left) == ["theirs", "theirs too", '{"process": "smoke-2-stopped"}']
