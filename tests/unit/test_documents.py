"""The Python of the documents runs as it stands there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from local.chat_service import ChatService
from tests.unit.tokens import TABLE, Api, Instances

ROOT = Path(__file__).parents[2]
OWN_FUNCTION, SIGNING = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "shared-token.md").read_text(), re.DOTALL)


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService() as running:
        yield running


def test_the_token_lock_in_a_function_of_ones_own(service: ChatService, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {
        "api_url": service.url,
        "credentials": {"client_id": service.client_id, "client_secret": service.client_secret},
        "table_name": TABLE,
    }
    with mock_aws():
        Instances(boto3.client("dynamodb"), Api())
        exec(OWN_FUNCTION, names)
    assert (capsys.readouterr().out != "", service.auths) == (True, 1)


def test_the_headers_of_a_signed_message() -> None:
    names: dict[str, Any] = {"json": json, "time": time, "signing_key": "0123456789abcdef"}
    exec(SIGNING, names)
    assert set(names["headers"]) == {"X-Slotkeeper-Timestamp", "X-Slotkeeper-Signature"}
