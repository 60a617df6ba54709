"""The Python of the documents runs as it stands there."""

from __future__ import annotations

import io
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws

from local.chat_service import ChatService
from slotkeeper.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, check_headers, verify
from tests.unit.tokens import TABLE, Api, Instances

KEY = "0123456789abcdef"
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


def test_a_signed_message_by_the_standard_library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[urllib.request.Request] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda request: sent.append(request) or io.BytesIO(b"answer"))
    exec(SIGNING, {"signing_key": KEY, "chatbot_url": "http://127.0.0.1/messages"})
    headers = {name.lower(): value for name, value in sent[0].header_items()}
    timestamp, signature = check_headers(
        headers[TIMESTAMP_HEADER.lower()], headers[SIGNATURE_HEADER.lower()], time.time()
    )
    verify([KEY], timestamp, signature, cast(bytes, sent[0].data))
