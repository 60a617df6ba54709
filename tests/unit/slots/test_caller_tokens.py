"""Task tokens in the texts of requests: which are refused, and that none is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.slots.request import InvalidRequest, masked, parse_request, token_of, without_token
from tests.unit.conftest import delivery
from tests.unit.janitor_scene import REQUEST

TOKEN = "AAAA-the-token-of-the-caller"


@pytest.mark.parametrize(
    "token", ["", 7, None, ["x"], "x" * 2049, "é"], ids=["empty", "number", "null", "list", "long", "wide"]
)
def test_a_token_that_is_not_one_is_refused_without_its_value(token: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(delivery({"process": "p", "task_token": token}))
    assert str(refused.value) == "body.task_token must be a string of 1 to 2,048 visible ASCII characters"


def test_a_task_token_is_in_no_repr() -> None:
    sent = delivery(REQUEST | {"task_token": TOKEN})
    assert TOKEN not in repr(sent) + repr(parse_request(sent))


@pytest.mark.parametrize(
    ("body", "without"),
    [
        ('{"process": "p"}', '{"process": "p"}'),
        ('{"a": "\\uffff", "task_token": "t", "caller": "c"}', '{"a":"\\uffff"}'),
        ('{"task\\u005ftoken": "t"}', "{}"),
        ('{"input": {"task_token": "theirs"}}', '{"input": {"task_token": "theirs"}}'),
        ('{"task_token": "t"', '{"task_token": "..."'),
        ('[{"task_token": "t\\"u"}]', '[{"task_token": "..."}]'),
        ('{"task_token": "cut of', '{"task_token": "...'),
    ],
)
def test_a_body_is_stripped_of_its_token(body: str, without: str) -> None:
    assert without_token(body) == without


@pytest.mark.parametrize("times", range(1, 5))
@pytest.mark.parametrize("token", [TOKEN, 't"u', "t\\u", "it's"])
def test_a_token_is_masked_however_often_its_body_was_encoded(token: str, times: int) -> None:
    text, without = ({"process": "p", "task_token": value, "weight": 2} for value in (token, "..."))
    for _ in range(times):
        text, without = json.dumps(text), json.dumps(without)
    assert masked(text) == without


def test_a_token_is_masked_wherever_its_body_is_cut() -> None:
    text = json.dumps(json.dumps(REQUEST | {"task_token": TOKEN}))
    assert not any("A" in masked(text[:length]) for length in range(len(text)))


def test_a_body_of_backslashes_is_masked_in_linear_time() -> None:
    """Otherwise one message of 256 KiB uses up the function's time."""
    body = "task_token" + "\\" * 100_000
    assert masked(body) == body


@pytest.mark.parametrize("body", ["junk", "[]", "{}", '{"task_token": 7}', '{"task_token": ""}'])
def test_a_body_without_a_usable_token_has_none(body: str) -> None:
    assert token_of(body) == ""
