"""Secrets: accepted values, the number of reads, and no value in any text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.chatbot.credentials import (
    SIGNING_KEYS_CACHE_SECONDS,
    Secrets,
    UnreadableSecret,
    UnusableSecret,
)
from tests.simulation.account.boundary import Calls, refuse
from tests.unit.chatbot_account import CREDENTIALS, KEY, SIGNING, ChatbotAccount

VALUE = "a-value-not-to-be-shown"


@pytest.fixture
def secrets(chat: ChatbotAccount) -> Secrets:
    return Secrets(chat.secretsmanager)


def _put(chat: ChatbotAccount, secret: str, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    chat.aws.secrets[secret] = {"SecretString": text}


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ({"signing_key": KEY}, [KEY]),
        ({"signing_keys": [KEY, VALUE]}, [KEY, VALUE]),
        ({"signing_key": KEY, "signing_keys": [VALUE]}, [KEY, VALUE]),
    ],
    ids=["the one that the deployment made", "a list", "both"],
)
def test_every_key_of_the_secret_is_accepted(
    secrets: Secrets, chat: ChatbotAccount, value: Any, keys: list[str]
) -> None:
    _put(chat, SIGNING, value)
    assert secrets.signing_keys(SIGNING) == keys


@pytest.mark.parametrize(
    "value",
    [
        VALUE,
        [VALUE],
        {"key": VALUE},
        {"signing_keys": []},
        {"signing_keys": VALUE, "signing_key": 7},
        {"signing_keys": [VALUE, ""]},
        {"signing_keys": [VALUE, "too short"]},
    ],
)
def test_unusable_keys_are_refused_and_not_shown(secrets: Secrets, chat: ChatbotAccount, value: Any) -> None:
    _put(chat, SIGNING, value)
    with pytest.raises(UnusableSecret, match=r"SigningKeySecretArn.*at least 16 characters") as refused:
        secrets.signing_keys(SIGNING)
    assert VALUE not in str(refused.value)


@pytest.mark.parametrize(
    "value", [VALUE, {}, {"client_id": VALUE}, {"client_id": "", "client_secret": VALUE}, {"client_secret": [VALUE]}]
)
def test_malformed_credentials_are_refused_with_the_expected_form(
    secrets: Secrets, chat: ChatbotAccount, value: Any
) -> None:
    _put(chat, CREDENTIALS, value)
    with pytest.raises(UnusableSecret, match=r'ApiCredentialsSecretArn must be {"client_id"') as refused:
        secrets.credentials(CREDENTIALS)
    assert VALUE not in str(refused.value)


def test_a_secret_without_a_value_is_unusable(secrets: Secrets, chat: ChatbotAccount) -> None:
    with pytest.raises(UnusableSecret, match="must be"):
        secrets.credentials("empty")


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("ThrottlingException", True),
        ("InternalServiceError", True),
        ("DecryptionFailure", False),
        ("AccessDeniedException", False),
    ],
)
def test_a_read_error_is_reported_by_its_code_alone_and_is_temporary_or_permanent(
    secrets: Secrets, chat: ChatbotAccount, code: str, passes: bool
) -> None:
    refuse(chat.secretsmanager, "GetSecretValue", code, times=9)
    with pytest.raises(UnusableSecret, match=rf"ApiCredentialsSecretArn cannot be read: {code}$") as refused:
        secrets.credentials(CREDENTIALS)
    assert isinstance(refused.value, UnreadableSecret) == passes


@pytest.mark.parametrize("value", [{"signing_key": KEY}, "not JSON"])
def test_signing_keys_are_cached_for_five_minutes_valid_or_not(
    secrets: Secrets, chat: ChatbotAccount, value: Any
) -> None:
    _put(chat, SIGNING, value)
    calls = Calls(chat.secretsmanager)
    for _ in range(5):
        try:
            secrets.signing_keys(SIGNING)
        except UnusableSecret:
            assert value == "not JSON"
    assert calls.made == ["GetSecretValue"]
    assert SIGNING_KEYS_CACHE_SECONDS == 300


def test_corrected_credentials_are_used_immediately(secrets: Secrets, chat: ChatbotAccount) -> None:
    _put(chat, CREDENTIALS, {"client_id": "id", "client_secret": "wrong"})
    secrets.credentials(CREDENTIALS)
    _put(chat, CREDENTIALS, {"client_id": "id", "client_secret": "right"})
    assert secrets.credentials(CREDENTIALS).client_secret == "right"
