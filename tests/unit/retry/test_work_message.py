"""The work message: parsing, refusals with a reason, and the message of the next attempt."""

from __future__ import annotations

import json
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.message import (
    MAX_PAYLOAD_DEPTH,
    SCHEMA_FILE,
    InvalidMessage,
    Message,
    epoch,
    instant,
    parse_message,
)
from tests.simulation.account.queues import ALLOWED

BEGAN = "2027-01-15T08:00:00.000Z"


def _body(**fields: Any) -> str:
    return json.dumps({"request_id": "r", "payload": {}, **fields})


def _nested(levels: int) -> str:
    return '{"request_id": "r", "payload": ' + '{"a":' * levels + "1" + "}" * levels + "}"


def test_a_message_needs_only_an_id_and_a_payload() -> None:
    message = parse_message('{"request_id": "r", "payload": {"a": 1}}')
    assert message == Message("r", {"a": 1}, (), 0)
    assert message.attempt == 1


def test_an_attempt_contains_the_start_times_of_earlier_attempts() -> None:
    message = parse_message(_body(retries=["2027-01-15T08:00:00Z", "2027-01-15T08:00:30.250Z"], uncounted=1))
    assert (message.attempt, message.retries, message.uncounted) == (3, (1_800_000_000.0, 1_800_000_030.25), 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("junk", "body is not JSON"),
        ("[]", "body must be object"),
        ("{}", "must contain"),
        ('{"payload": {}}', "request_id"),
        ('{"request_id": "r"}', "payload"),
        (_body(request_id=""), "body.request_id must be longer than or equal to 1"),
        (_body(request_id="x" * 129), "body.request_id must be shorter than or equal to 128"),
        (_body(request_id=7), "body.request_id must be string"),
        (_body(payload=[]), "body.payload must be object"),
        (_body(priority=1), "priority"),
        (_body(retries=BEGAN), "body.retries must be array"),
        (_body(retries=[1_800_000_000]), r"body.retries\[0\] must be string"),
        (_body(retries=["yesterday"]), r"body.retries\[0\] must match pattern"),
        (_body(retries=["2027-01-15T08:00:00"]), r"body.retries\[0\] must match pattern"),
        (_body(retries=["2027-01-15T08:00:00+00:00"]), r"body.retries\[0\] must match pattern"),
        (_body(retries=[BEGAN + "\n"]), r"body.retries\[0\] must match pattern"),
        (
            _body(retries=["2027-02-30T08:00:00Z"]),
            "'2027-02-30T08:00:00Z', which is not a valid time",
        ),
        (_body(retries=["0000-01-01T00:00:00Z"]), "which is not a valid time"),
        (_body(retries=["9999-12-31T23:59:59.999999Z"]), "which is not a valid time"),
        (_body(retries=[BEGAN] * 1001), "body.retries must contain less than or equal to 1000"),
        (_body(retries=[BEGAN], uncounted=2), "body.uncounted is 2 but body.retries has 1"),
        (_body(uncounted=-1), "body.uncounted must be bigger than or equal to 0"),
        (_body(uncounted=True), "body.uncounted must be integer"),
        (_body(uncounted=0.5), "body.uncounted must be integer"),
        ('{"request_id": "r", "payload": {"a": NaN}}', "not JSON"),
        ('{"request_id": "r", "payload": {"a": [-Infinity]}}', "not JSON"),
        ('{"request_id": "r", "payload": {"a": [{"b": 1e999}]}}', "not JSON"),
        ('{"request_id": "r", "payload": {}, "uncounted": 1e999}', "body.uncounted must be integer"),
        ('{"request_id": "r", "payload": {"a": "\\ud800"}}', "half of a surrogate pair"),
        ('{"request_id": "\\udfff", "payload": {}}', "half of a surrogate pair"),
        (_nested(MAX_PAYLOAD_DEPTH), f"nested more than {MAX_PAYLOAD_DEPTH} levels deep"),
        (_nested(sys.getrecursionlimit() * 100), "body is not JSON|nested"),
        ('{"request_id": "r", "payload": {"a": ' + "9" * 5000 + "}}", "body is not JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_an_invalid_body_is_refused_with_its_error(body: str, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        parse_message(body)


@pytest.mark.parametrize(
    "body",
    [
        _body(payload="secret"),
        _body(payload=["secret"]),
        _body(payload={"a": "secret"}, priority=1),
        json.dumps({"payload": {"a": "secret"}}),
        '["secret"]',
        '{"request_id": "r", "payload": {"a": "secret", "b": NaN}}',
    ],
)
def test_no_reason_contains_the_payload(body: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_message(body)
    assert "secret" not in str(refused.value)


def test_a_payload_of_the_maximum_depth_is_accepted() -> None:
    assert parse_message(_nested(MAX_PAYLOAD_DEPTH - 1)).payload


def test_the_next_attempt_contains_this_start_and_whether_it_counts() -> None:
    message = Message("r", {}, (1.0,), 0).after(2.0).after(3.0, counted=False)
    assert (message.retries, message.uncounted, message.attempt) == ((1.0, 2.0, 3.0), 1, 4)


def test_a_retry_is_compact_json_and_contains_uncounted_only_if_positive() -> None:
    body = Message("r", {"a": [1, 2]}, (1_800_000_000.0,)).to_json()
    assert body == '{"request_id":"r","payload":{"a":[1,2]},"retries":["2027-01-15T08:00:00.000Z"]}'


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (' { "request_id" :"r" ,\n"payload"\t: { "a" : 1e9 } } ', '{ "a" : 1e9 }'),
        ('{"payload":{"a":1.10},"request_id":"r"}', '{"a":1.10}'),
        ('{"request_id":"r","payload":{"payload":{"b":"}"}}}', '{"payload":{"b":"}"}}'),
        ('{"payload":{"a":1},"request_id":"r","payload":{"a":2}}', '{"a":2}'),
        ('{"request_id":"payload","payload":{"a":"\\u00e9\\/"}}', '{"a":"\\u00e9\\/"}'),
    ],
)
def test_the_payload_is_sent_as_its_sender_wrote_it(body: str, payload: str) -> None:
    message = parse_message(body)
    assert json.loads(payload) == message.payload
    assert f'"payload":{payload},"retries":' in message.after(1.0).to_json()


def test_the_two_characters_that_sqs_refuses_stay_escaped() -> None:
    body = '{"request_id": "r", "payload": {"a": "\\ufffe and \\uffff"}}'
    again = parse_message(body).to_json()
    assert ALLOWED.fullmatch(again)
    assert parse_message(again).payload == {"a": "\ufffe and \uffff"}


def test_an_attempt_adds_27_bytes() -> None:
    message = Message("r", {}, (1_800_000_000.0,))
    assert len(message.after(1_800_000_000.5).to_json()) - len(message.to_json()) == 27


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2,   "a": 1}', True),
        ('{"a": "\\u00e9"}', '{"a": "é"}', True),
        ('{"a": 1}', '{"a": 2}', False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
    ],
)
def test_payloads_are_compared_by_value(one: str, other: str, same: bool) -> None:
    hashes = {parse_message(f'{{"request_id": "r", "payload": {text}}}').payload_hash for text in (one, other)}
    assert (len(hashes) == 1) == same


def test_the_payload_is_not_in_a_messages_repr() -> None:
    assert "secret" not in repr(parse_message(_body(payload={"password": "secret"})))


text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=20,
)
as_a_producer_checks = jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text()))
# Milliseconds from 1970 to 2200. A float cannot represent later ones exactly.
times = st.integers(0, int(epoch("2200-01-01T00:00:00Z") * 1000))


@st.composite
def messages(draw: Any) -> Message:
    retries = tuple(epoch(instant(ms / 1000)) for ms in draw(st.lists(times, max_size=5)))
    uncounted = draw(st.integers(0, len(retries)))
    request_id = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128))
    return Message(request_id, draw(st.dictionaries(text, values)), retries, uncounted)


@given(messages())
def test_every_message_is_parsed_as_it_was_sent(message: Message) -> None:
    body = message.to_json()
    again = parse_message(body)
    assert again == message
    assert again.payload_hash == message.payload_hash
    assert again.to_json() == body
    assert ALLOWED.fullmatch(body)
    as_a_producer_checks.validate(json.loads(body))
