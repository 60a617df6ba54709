"""The shipped work over a bucket in moto. A race is told step by step here, never left to chance: see Boundaries."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import boto3
import pytest
from moto import mock_aws

from tests.work.bucket import Bucket

WORKER = Path(__file__).parents[2] / "functions" / "worker"
MODULES = ("work", "publishing", "splitting")


def _forget() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """Shared, because it reads the description of S3 only once; a hook stays in the client that it was put into."""
    return boto3.Session("local", "local", region_name="us-east-1")


@pytest.fixture
def bucket(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """The data bucket, versioned as the template makes it, and the work loaded as a cold container loads it."""
    monkeypatch.setenv("DATA_BUCKET_NAME", "data")
    monkeypatch.setenv("WORK_SECONDS", "50")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    monkeypatch.syspath_prepend(str(WORKER))
    _forget()
    with mock_aws():
        s3 = session.client("s3")
        s3.create_bucket(Bucket="data")
        s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
        yield Bucket(importlib.import_module("work"), s3)
    _forget()


@pytest.fixture(scope="module")
def splitting() -> Iterator[ModuleType]:
    """The module by itself: it needs no bucket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(WORKER))
        _forget()
        yield importlib.import_module("splitting")
    _forget()
