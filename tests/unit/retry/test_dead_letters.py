"""Dead-letter messages explain themselves, and can be sent again unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.delivery import (
    MAX_HISTORY_CHARACTERS,
    MAX_MESSAGE_BYTES,
    MAX_REASON_CHARACTERS,
)
from slotkeeper.retry.message import Message, instant, parse_message
from tests.unit.work_messages import QueuedMessage
from tests.unit.worker_harness import NOW, WorkerHarness

HISTORY = [{"attempt": 1, "at": instant(NOW), "error": "Timeout: no answer"}]
ATTRIBUTE_ORDER = ["code", "reason", "idempotency_key", "retry_count", "first_attempt_at", "last_attempt_at", "history"]


def size(dead_letter: QueuedMessage) -> int:
    attributes: Any = dead_letter.attributes
    return message_attributes.size(dead_letter.body, attributes)


def body_of(length: int, **fields: Any) -> str:
    """A producer's message with a body of that many bytes."""
    empty = json.dumps({"request_id": "r", "payload": {"filling": ""}, **fields}, separators=(",", ":"))
    return empty.replace('"filling":""', '"filling":"' + "x" * (length - len(empty)) + '"')


def test_r4_a_dead_letter_message_contains_reason_times_and_attempts(workplace: WorkerHarness) -> None:
    workplace.dead_letter_queue.send(Message("r", {}, (NOW,)), NOW + 60, "Poison", "Poison: no such object", HISTORY)
    assert workplace.dead_letter.texts == {
        "code": "Poison",
        "reason": "Poison: no such object",
        "idempotency_key": "r",
        "retry_count": "2",
        "first_attempt_at": instant(NOW),
        "last_attempt_at": instant(NOW + 60),
        "history": json.dumps(HISTORY),
    }


def test_f26_a_dead_letter_message_is_the_attempt_after_the_failed_one(workplace: WorkerHarness) -> None:
    workplace.dead_letter_queue.send(
        Message("r", {"a": 1}, (NOW,), 1), NOW + 60, "AttemptsExhausted", "8 of 8", HISTORY
    )
    assert parse_message(workplace.dead_letter.body) == Message("r", {"a": 1}, (NOW, NOW + 60), 1)


def test_an_invalid_message_is_dead_lettered_unchanged(workplace: WorkerHarness) -> None:
    workplace.dead_letter_queue.send_invalid("junk", "message-1", "body is not JSON")
    assert workplace.dead_letter.body == "junk"
    assert workplace.dead_letter.texts == {
        "code": "InvalidMessage",
        "reason": "body is not JSON",
        "source_message_id": "message-1",
    }


def test_a_request_without_work_is_dead_lettered_unchanged(workplace: WorkerHarness) -> None:
    body = '{ "request_id": "r", "payload": {"a": 1e2} }'
    workplace.dead_letter_queue.send_unworked(parse_message(body), "message-1", "RequestIdReused", "another payload")
    assert workplace.dead_letter.body == body
    assert workplace.dead_letter.texts == {
        "code": "RequestIdReused",
        "reason": "another payload",
        "idempotency_key": "r",
        "retry_count": "0",
        "source_message_id": "message-1",
    }


def test_long_reasons_are_cut_and_empty_reasons_are_filled(workplace: WorkerHarness) -> None:
    workplace.dead_letter_queue.send_invalid("junk", "m", "x" * 5000)
    workplace.dead_letter_queue.send_invalid("junk", "m", "")
    assert [each.texts["reason"] for each in workplace.dead_letters] == [
        "x" * MAX_REASON_CHARACTERS,
        "-",
    ]


def test_control_characters_in_reasons_and_keys_are_replaced(workplace: WorkerHarness) -> None:
    """The harness refuses the characters that SQS refuses."""
    workplace.dead_letter_queue.send(Message("\x00\ufffe", {}), NOW, "Poison", "line\x0b\uffff", HISTORY)
    assert workplace.dead_letter.texts["idempotency_key"] == "??"


def test_a_long_history_keeps_the_first_entry_and_the_last_ones(workplace: WorkerHarness) -> None:
    history = [{"attempt": n, "at": instant(NOW), "error": "x" * 700} for n in range(1, 21)]
    workplace.dead_letter_queue.send(Message("r", {}), NOW, "Poison", "bad", history)
    text = workplace.dead_letter.texts["history"]
    assert len(text) <= MAX_HISTORY_CHARACTERS
    attempts = [entry["attempt"] for entry in json.loads(text)]
    assert attempts == [1, *range(21 - len(attempts) + 1, 21)]
    assert len(attempts) > 5


@pytest.mark.parametrize("kept", range(len(ATTRIBUTE_ORDER) + 1))
def test_attributes_that_do_not_fit_are_omitted_least_important_first(workplace: WorkerHarness, kept: int) -> None:
    small = Message("r", {"filling": ""})
    workplace.dead_letter_queue.send(small, NOW, "Poison", "bad", HISTORY)
    whole = workplace.dead_letters.pop()
    room = sum(size(QueuedMessage("", 0, "", {name: whole.attributes[name]})) for name in ATTRIBUTE_ORDER[:kept])
    filling = "x" * (MAX_MESSAGE_BYTES - room - len(whole.body))
    workplace.dead_letter_queue.send(Message("r", {"filling": filling}), NOW, "Poison", "bad", HISTORY)
    dead_letter = workplace.dead_letter
    assert sorted(dead_letter.attributes) == sorted(ATTRIBUTE_ORDER[:kept])
    assert size(dead_letter) == MAX_MESSAGE_BYTES


def test_a_message_of_a_mebibyte_is_dead_lettered_without_its_last_attempt(workplace: WorkerHarness) -> None:
    message = parse_message(body_of(MAX_MESSAGE_BYTES, retries=[]))
    workplace.dead_letter_queue.send(message, NOW, "TooLarge", "too large", HISTORY)
    assert parse_message(workplace.dead_letter.body).attempt == 1
