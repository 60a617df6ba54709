"""The sample request of `make work`, and the lines printed for its result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dev.emulator import next_steps
from dev.emulator.worker_client import request_id_of
from functions.worker import sample


@pytest.fixture
def aws(session: boto3.Session) -> Iterator[Any]:
    with mock_aws():
        session.client("s3").create_bucket(Bucket="data")
        yield SimpleNamespace(client=session.client, outputs={"DataBucketName": "data"})


def test_local_up_uploads_the_input_of_the_sample_request(aws: Any) -> None:
    next_steps.upload_sample(aws)
    payload = json.loads(sample.body())["payload"]
    lines = aws.client("s3").get_object(Bucket="data", Key=payload["input_key"])["Body"].read().splitlines()
    assert len(lines) == 31
    assert all(payload["split_by"] in json.loads(line) for line in lines)


def test_each_sample_has_an_id_of_its_own() -> None:
    assert request_id_of(sample.body()) != request_id_of(sample.body())


def test_local_up_prints_the_command_with_the_sample() -> None:
    assert next_steps.work_command().startswith("make work; or your own body: make work BODY=")
    assert sample.body("first") in next_steps.work_command()


def test_the_printed_result_is_read_from_the_manifest(aws: Any) -> None:
    parts = b'{"parts": [{"value": "rain", "key": "k", "records": 1}]}'
    aws.client("s3").put_object(Bucket="data", Key="m", Body=parts)
    assert sample.result_lines(aws.client("s3"), "data", {"manifest": "m"}) == [
        "its manifest in data: m",
        "  rain: k, records: 1",
    ]
