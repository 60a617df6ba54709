"""The template's empty AWS_ENDPOINT_URL changes nothing: boto3 calls AWS.

botocore has skipped an empty value since it knows the variable (1.31.0; also 1.34.145 and 1.36.3), so the boto3 of
Lambda's runtime does too.
"""

from __future__ import annotations

import boto3
import pytest

from tests.template.parsing import parsed_template

SERVICES = ["dynamodb", "events", "glue", "lambda", "s3", "scheduler", "secretsmanager", "sqs", "ssm", "stepfunctions"]


def test_boto3_ignores_the_templates_empty_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    value = parsed_template()["Globals"]["Function"]["Environment"]["Variables"]["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", value)
    session = boto3.Session("key", "secret", region_name="eu-west-1")
    called = [session.client(service).meta.endpoint_url for service in SERVICES]
    names = ["states" if service == "stepfunctions" else service for service in SERVICES]
    assert called == [f"https://{name}.eu-west-1.amazonaws.com" for name in names]
