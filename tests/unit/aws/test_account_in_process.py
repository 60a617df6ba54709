"""The account of the tests: what it refuses, and that it does nothing that it does not simulate."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from tests.simulation.account.account import AwsAccount, NotSimulated

WORK = "https://sqs/work"


def _code(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**parameters)
    return str(raised.value.response["Error"]["Code"])


def test_an_operation_that_is_not_simulated_ends_also_code_that_handles_every_exception(aws: AwsAccount) -> None:
    try:
        with pytest.raises(NotSimulated, match="PurgeQueue of sqs"):
            boto3.client("sqs").purge_queue(QueueUrl=WORK)
    except Exception:
        pytest.fail("it is an Exception")


def test_a_resource_that_was_not_made_is_refused(aws: AwsAccount) -> None:
    machine = "arn:aws:states:us-east-1:123456789012:stateMachine:none"
    states, dynamodb = boto3.client("stepfunctions"), boto3.client("dynamodb")
    assert _code(boto3.client("sqs").send_message, QueueUrl="https://sqs/none", MessageBody="x").endswith("Queue")
    assert _code(states.start_execution, stateMachineArn=machine, name="a") == "StateMachineDoesNotExist"
    assert _code(dynamodb.scan, TableName="none") == "ResourceNotFoundException"
    assert _code(boto3.client("glue").get_job_runs, JobName="none") == "EntityNotFoundException"


def test_the_last_stub_answers_and_may_leave_a_call_to_the_account(aws: AwsAccount) -> None:
    aws.stubs += [("dynamodb", {"Scan": lambda _: {"Items": [], "Count": 7}}), ("dynamodb", {"Scan": lambda _: None})]
    assert boto3.client("dynamodb").scan(TableName="slots")["Count"] == 7
    aws.stubs.append(("dynamodb", {"Scan": lambda _: {"Error": {"Code": "AccessDenied", "Message": "no"}}}))
    assert _code(boto3.client("dynamodb").scan, TableName="slots") == "AccessDenied"


def test_a_local_endpoint_is_not_answered(aws: AwsAccount) -> None:
    once = Config(retries={"total_max_attempts": 1})
    local = boto3.client("dynamodb", endpoint_url="http://127.0.0.1:1", config=once)
    with pytest.raises(EndpointConnectionError):
        local.scan(TableName="slots")
