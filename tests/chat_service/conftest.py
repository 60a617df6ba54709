"""A simulated chat API and a client for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import ChatService
from tests.chat_service.chat_api_client import ChatApiClient


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService() as running:
        yield running


@pytest.fixture
def client(service: ChatService) -> Iterator[ChatApiClient]:
    with ChatApiClient(service) as client:
        yield client
