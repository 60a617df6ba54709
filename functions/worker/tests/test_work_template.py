"""The shipped work in the template: its time, its permissions and its variable."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from botocore.config import Config

from slotkeeper.retry.worker import CLIENT_CONFIG
from tests.template.client_configs import longest_call
from tests.template.test_template import FUNCTIONS, TEMPLATE

PERFORM = "functions.worker.src.work.perform"
WORKER = FUNCTIONS["WorkerFunction"]
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]


@pytest.fixture
def s3_client(monkeypatch: pytest.MonkeyPatch) -> Config:
    """The settings of the shipped work's client, for the longest time that the template allows."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DATA_BUCKET_NAME", "bucket")
    monkeypatch.setenv("WORK_SECONDS", str(PARAMETERS["WorkSeconds"]["MaxValue"]))
    monkeypatch.delitem(sys.modules, PERFORM, raising=False)
    settings: Config = importlib.import_module(PERFORM)._s3.meta.config
    del sys.modules[PERFORM]
    return settings


def test_the_outcome_of_the_longest_work_and_overrun_can_still_be_recorded(s3_client: Config) -> None:
    calls = 3  # the call in progress at the deadline, the check of its effect, and the clean-up
    assert s3_client.retries["total_max_attempts"] == 1
    hanging = calls * _one_attempt(s3_client)
    assert PARAMETERS["WorkSeconds"]["MaxValue"] + hanging + longest_call(CLIENT_CONFIG) <= WORKER["Timeout"]


def _one_attempt(client: Config) -> float:
    seconds: float = client.connect_timeout + client.read_timeout
    return seconds


def test_the_function_has_the_variable_of_the_work() -> None:
    assert WORKER["Environment"]["Variables"]["DATA_BUCKET_NAME"] == {"Ref": "DataBucket"}
