"""The shipped work over a bucket in moto. Races are fixed sequences of steps: see Boundaries."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from functions.worker.tests.bucket import Bucket

PERFORM = "functions.worker.src.work.perform"


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """Shared, because reading the model of S3 takes time. Hooks belong to clients and do not affect other tests."""
    return boto3.Session("local", "local", region_name="us-east-1")


@pytest.fixture
def bucket(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """The data bucket with versions, as in the template, and the work imported as in a cold container."""
    monkeypatch.setenv("DATA_BUCKET_NAME", "data")
    monkeypatch.setenv("WORK_SECONDS", "50")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    sys.modules.pop(PERFORM, None)
    with mock_aws():
        s3 = session.client("s3")
        s3.create_bucket(Bucket="data")
        s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
        yield Bucket(importlib.import_module(PERFORM), s3)
    sys.modules.pop(PERFORM, None)
