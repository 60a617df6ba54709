from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.chatbot.messages import (
    MAX_BODY_BYTES,
    SCHEMA_FILE,
    ChatMessage,
    MessageTooLarge,
    check_size,
    parse_message,
)
from slotkeeper.schema import InvalidBody

SCHEMA = jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text()))


def test_a_message_needs_its_id_and_its_text_and_may_name_its_conversation() -> None:
    assert parse_message('{"message_id": "m", "text": "grüß"}'.encode()) == ChatMessage("m", "grüß")
    assert parse_message(b'{"message_id": "m", "text": "t", "conversation": "c"}').conversation == "c"


BAD = {
    "nothing": (b"", "not JSON"),
    "half of it": (b'{"message_id": "m"', "not JSON"),
    "not UTF-8": (b'{"message_id": "\xff"}', "not UTF-8"),
    "UTF-16": ('{"message_id": "m", "text": "t"}'.encode("utf-16"), "not UTF-8"),
    "half a surrogate pair": (b'{"message_id": "m", "text": "\\ud800"}', "surrogate"),
    "nested without end": (b"[" * MAX_BODY_BYTES, "not JSON"),
    "not an object": (b"[]", "body must be object"),
    "no id": (b'{"text": "t"}', "message_id"),
    "an id of another type": (b'{"message_id": 1, "text": "t"}', "body.message_id must be string"),
    "an empty id": (b'{"message_id": "", "text": "t"}', "body.message_id"),
    "a long id": (json.dumps({"message_id": "m" * 129, "text": "t"}).encode(), "body.message_id"),
    "no text": (b'{"message_id": "m"}', "text"),
    "an empty text": (b'{"message_id": "m", "text": ""}', "body.text"),
    "a null conversation": (b'{"message_id": "m", "text": "t", "conversation": null}', "body.conversation"),
    "an unknown field": (b'{"message_id": "m", "text": "t", "mood": 1}', "mood"),
}


@pytest.mark.parametrize(("body", "names"), BAD.values(), ids=BAD)
def test_a_malformed_body_is_refused_with_a_reason_that_names_the_field(body: bytes, names: str) -> None:
    with pytest.raises(InvalidBody, match=names) as refused:
        parse_message(body)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "body",
    [
        '{"message_id": "m", "text": ["my card is 4111"]}',
        '{"message_id": 4111, "text": "t"}',
        '{"message_id": "m", "text": "t", "conversation": {"4111": "4111"}}',
        '{"message_id": "' + 33 * "4111" + '", "text": "t"}',
        '"my card is 4111"',
        "[4111]",
        "my card is 4111",
    ],
)
def test_no_reason_contains_the_users_text(body: str) -> None:
    with pytest.raises(InvalidBody) as refused:
        parse_message(body.encode())
    assert "4111" not in str(refused.value)


def test_a_body_that_is_too_large_is_refused() -> None:
    check_size(b"x" * MAX_BODY_BYTES)
    with pytest.raises(MessageTooLarge, match="65537 bytes; at most 65536 are accepted"):
        check_size(b"x" * (MAX_BODY_BYTES + 1))


_json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_nearly_messages = st.fixed_dictionaries(
    {},
    optional={
        "message_id": st.text() | _json_values,
        "text": st.text() | _json_values,
        "conversation": st.text() | _json_values,
        "more": _json_values,
    },
)


@given(_nearly_messages | _json_values)
def test_every_body_is_a_message_or_is_refused_as_the_schema_says(body: Any) -> None:
    """Senders validate with the schema's file, so it must accept exactly the messages that the chatbot accepts."""
    try:
        parse_message(json.dumps(body).encode())
    except InvalidBody as refused:
        if "surrogate" not in str(refused):
            with pytest.raises(jsonschema.ValidationError):
                SCHEMA.validate(body)
    else:
        SCHEMA.validate(body)


def test_the_schema_is_valid() -> None:
    SCHEMA.check_schema(SCHEMA.schema)
