"""Signatures of messages, their time window, and the table of used signatures."""

from __future__ import annotations

import hashlib
import hmac
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.chatbot import signatures
from slotkeeper.chatbot.signatures import WINDOW, SeenSignatures, SignatureRefused, check_headers, sign, verify
from tests.simulation.account.boundary import lose_answer, refuse
from tests.simulation.account.items import SEEN
from tests.unit.chatbot_account import ChatbotAccount
from tests.unit.conftest import NOW

KEY, OTHER_KEY = "k" * 32, "o" * 32
BODY = '{"text": "grüß"}'.encode()
STAMP = str(int(NOW))


def _check(timestamp: str | None = STAMP, signature: str | None = None, body: bytes = BODY, now: float = NOW) -> None:
    signed_at, given = check_headers(timestamp, sign(KEY, int(NOW), BODY) if signature is None else signature, now)
    verify([KEY], signed_at, given, body)


def test_a_signature_is_the_hmac_over_version_timestamp_and_raw_body() -> None:
    expected = hmac.new(KEY.encode(), b"v1:" + STAMP.encode() + b":" + BODY, hashlib.sha256).hexdigest()
    assert sign(KEY, int(NOW), BODY) == f"v1={expected}"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no timestamp": ({"timestamp": None}, "MissingHeader"),
    "an empty timestamp": ({"timestamp": ""}, "MissingHeader"),
    "no signature": ({"signature": ""}, "MissingHeader"),
    "a timestamp that is no number": ({"timestamp": "now"}, "MalformedTimestamp"),
    "a fraction": ({"timestamp": STAMP + ".5"}, "MalformedTimestamp"),
    "milliseconds": ({"timestamp": STAMP + "000"}, "MalformedTimestamp"),
    "a sign": ({"timestamp": "+" + STAMP}, "MalformedTimestamp"),
    "a leading zero": ({"timestamp": "0" + STAMP}, "MalformedTimestamp"),
    "a line feed": ({"timestamp": STAMP + "\n"}, "MalformedTimestamp"),
    "digits of another script": ({"timestamp": "١٨٠٠٠٠٠٠٠٠"}, "MalformedTimestamp"),
    "a signature without version": ({"signature": "0" * 64}, "MalformedSignature"),
    "a signature in upper case": ({"signature": sign(KEY, int(NOW), BODY).upper()}, "MalformedSignature"),
    "a signature that is too short": ({"signature": "v1=" + "0" * 63}, "MalformedSignature"),
    "a signature that is not ASCII": ({"signature": "v1=" + "é" * 64}, "MalformedSignature"),
    "another body": ({"body": BODY + b" "}, "WrongSignature"),
    "another key": ({"signature": sign(OTHER_KEY, int(NOW), BODY)}, "WrongSignature"),
    "another timestamp": ({"timestamp": str(int(NOW) + 1)}, "WrongSignature"),
    "all zeros": ({"signature": "v1=" + "0" * 64}, "WrongSignature"),
}


@pytest.mark.parametrize(("changes", "code"), REFUSED.values(), ids=REFUSED)
def test_any_other_request_is_refused_with_its_code(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(SignatureRefused) as refused:
        _check(**changes)
    assert refused.value.code == code


@pytest.mark.parametrize("apart", [-WINDOW, 0, WINDOW])
def test_a_signed_request_passes_within_the_window_and_at_its_edges(apart: int) -> None:
    _check(now=NOW + apart)


@pytest.mark.parametrize(("apart", "direction"), [(-WINDOW - 1, "in the future"), (WINDOW + 1, "in the past")])
def test_a_timestamp_outside_the_window_is_refused_with_the_window(apart: int, direction: str) -> None:
    with pytest.raises(SignatureRefused, match=f"301 s {direction}; it must be within 300 s") as refused:
        _check(now=NOW + apart)
    assert refused.value.code == "StaleTimestamp"


def test_a_refusal_repeats_neither_key_nor_signature() -> None:
    wrong = sign(OTHER_KEY, int(NOW), BODY)
    with pytest.raises(SignatureRefused) as refused:
        _check(signature=wrong)
    text = str(refused.value)
    assert KEY not in text
    assert wrong not in text
    assert sign(KEY, int(NOW), BODY) not in text


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_each_of_several_keys_is_accepted(key: str) -> None:
    verify([KEY, OTHER_KEY], int(NOW), sign(key, int(NOW), BODY), BODY)


def test_without_a_key_every_request_is_refused() -> None:
    with pytest.raises(SignatureRefused):
        verify([], int(NOW), sign("", int(NOW), BODY), BODY)


def test_signatures_are_compared_in_constant_time_with_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that stops at the first difference, or at the first matching key, leaks its progress by its time."""
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(signatures.hmac, "compare_digest", compare)
    verify([KEY, OTHER_KEY], int(NOW), sign(KEY, int(NOW), BODY), BODY)
    assert len(compared) == 2


@pytest.fixture
def seen(chat: ChatbotAccount) -> SeenSignatures:
    return SeenSignatures(chat.dynamodb, SEEN)


SIGNATURE = sign(KEY, int(NOW), BODY)


def test_f34_an_entry_expires_in_whole_seconds_and_after_the_window(seen: SeenSignatures, chat: ChatbotAccount) -> None:
    """TTL expects seconds since the epoch. Milliseconds would be a date in fifty thousand years."""
    seen.note(SIGNATURE, int(NOW), "one")
    (item,) = chat.seen()
    expires_at = Decimal(item["expires_at"]["N"])
    assert expires_at == int(expires_at)
    last_moment_it_could_pass = NOW + WINDOW
    assert last_moment_it_could_pass < expires_at < NOW + 3600


@pytest.mark.parametrize("has_item", [True, False])
def test_f33_a_signature_is_accepted_once_and_again_for_the_request_that_stored_it(
    seen: SeenSignatures, chat: ChatbotAccount, has_item: bool
) -> None:
    """Without an item in the error it is read consistently: another read may miss the write whose answer was lost."""
    asked: list[dict[str, Any]] = []
    chat.dynamodb.meta.events.register(
        "provide-client-params.dynamodb.GetItem", lambda params, **_: asked.append(params)
    )
    lose_answer(chat.dynamodb, "PutItem")
    if not has_item:
        _omit_item(chat)
    assert seen.note(SIGNATURE, int(NOW), "one")
    assert not seen.note(SIGNATURE, int(NOW), "another")
    assert [each["ConsistentRead"] for each in asked] == ([] if has_item else [True, True])


def _omit_item(chat: ChatbotAccount) -> None:
    chat.dynamodb.meta.events.register("after-call.dynamodb.PutItem", lambda parsed, **_: parsed.pop("Item", None))


def test_a_request_is_refused_if_dynamodb_fails(seen: SeenSignatures, chat: ChatbotAccount) -> None:
    lose_answer(chat.dynamodb, "PutItem", times=2)
    with pytest.raises(BotoCoreError):
        seen.note(SIGNATURE, int(NOW), "one")
    refuse(chat.dynamodb, "PutItem", "ThrottlingException", times=9)
    with pytest.raises(ClientError, match="ThrottlingException"):
        seen.note(SIGNATURE, int(NOW), "one")
