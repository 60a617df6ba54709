"""Parsing and validation of request messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator import jsonata_values
from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots.request import (
    MAX_BODY_BYTES,
    MAX_INPUT_BYTES,
    PRIORITIES,
    SCHEMA_FILE,
    InvalidRequest,
    RequestTooLarge,
    caller_of,
    execution_name,
    parse_request,
)
from tests.unit.conftest import delivery

LARGEST_INPUT = 262_144  # Step Functions API Reference, StartExecution, `input`
# As they are: no form of Unicode is another one. Some characters are separators in places.
KEYS = (*"#/~\u00e9\u200d\uffff", "k" * 64, "\U0001f600" * 16, " a b ", "e\u0301", "007")
SCHEMA = jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text()))


def test_the_name_of_an_execution_is_the_documented_hash() -> None:
    # python3 -c "import hashlib; print(hashlib.sha256(b'order-1\\n2').hexdigest()[:32])"
    assert execution_name("sales", "order-1", 2) == "sales-fb418ef8531f54475f9925bb01241d87"
    assert execution_name("p", "a1", 1) != execution_name("p", "a", 11)


def test_the_input_of_a_request_with_an_id_does_not_depend_on_the_delivery() -> None:
    body = {"process": "p", "request_id": "mine"}
    first = parse_request(delivery(body, message_id="one", sequence="1", sent_at=1.0))
    again = parse_request(delivery(body, message_id="two", sequence="9", sent_at=2.0))
    assert first.to_json() == again.to_json()


FULL = {
    "one long value": json.dumps({"process": "p", "arguments": {"--t": "v" * 65_000}}, separators=(",", ":")),
    "Cyrillic": json.dumps({"process": "p", "arguments": {"--t": "я" * 32_700}}, ensure_ascii=False),
    "many short arguments": json.dumps(
        {"process": "p", "arguments": {f"--{n}": "" for n in range(5_500)}}, separators=(",", ":")
    ),
    "characters that SQS allows only escaped": '{"process": "p", "arguments": {"--t": "' + "\\uffff" * 10_000 + '"}}',
}


@pytest.mark.parametrize("body", FULL.values(), ids=FULL)
def test_a_request_of_the_largest_size_fits_the_input_of_an_execution(body: str) -> None:
    body += " " * (MAX_BODY_BYTES - len(body.encode()))
    request = parse_request(delivery(body, message_id="i" * 36))
    again = replace(request, attempt=1_000_000).to_json()
    assert len(again.encode()) < LARGEST_INPUT
    assert json.loads(again)["arguments"] == request.arguments
    assert not {"\ufffe", "\uffff"} & set(again)


BAD_BODIES = {
    "not JSON": ("{", "not JSON"),
    "half a surrogate pair": ('{"process": "p", "request_id": "\\ud800"}', "surrogate"),
    "not an object": ("[]", "body must be a JSON object, got another value"),
    "encoded twice": ('"{}"', "body must be a JSON object, got a string; was it encoded twice?"),
    "no process": ("{}", "process"),
    "process of another type": ('{"process": 7}', "body.process must be string"),
    "process too long": (json.dumps({"process": "p" * 48}), "body.process"),
    "process with a line feed": (json.dumps({"process": "p\n"}), "body.process"),
    "unknown field": ('{"process": "p", "priority": 1}', "priority"),
    "argument of another type": ('{"process": "p", "arguments": {"--a": 1}}', "body.arguments.--a must be string"),
    "argument without dashes": ('{"process": "p", "arguments": {"a": "1"}}', "a"),
    "unknown priority": ('{"process": "p", "priority": "urgent"}', "body.priority must be one of"),
    "weight zero": ('{"process": "p", "weight": 0}', "body.weight must be bigger than or equal to 1"),
    "fractional weight": ('{"process": "p", "weight": 1.5}', "body.weight must be integer"),
    "weight true": ('{"process": "p", "weight": true}', "body.weight must be integer"),
    "weight above the maximum": ('{"process": "p", "weight": 100001}', "body.weight must be smaller than or equal to"),
    "attempt zero": ('{"process": "p", "attempt": 0}', "body.attempt"),
    "attempt true": ('{"process": "p", "attempt": true}', "body.attempt must be integer"),
    "request id too long": (json.dumps({"process": "p", "request_id": "x" * 129}), "body.request_id"),
    "empty request id": ('{"process": "p", "request_id": ""}', "body.request_id"),
    "empty key": (
        '{"process": "p", "key": ""}',
        "body.key must have 1 to 64 bytes; a request without a key has no field",
    ),
    "key of 65 bytes": (json.dumps({"process": "p", "key": "k" * 65}), "body.key must have at most 64 bytes .* got 65"),
    "key of 22 characters": (json.dumps({"process": "p", "key": "\u20ac" * 22}), "at most 64 bytes in UTF-8, got 66"),
    **{
        f"key with {code}": (json.dumps({"process": "p", "key": f"a{chr(code)}"}), "body.key must contain no control")
        for code in (0, 9, 10, 0x1F, 0x7F, 0x80, 0x9F)
    },
    "key with half a surrogate pair": ('{"process": "p", "key": "a\\udfff"}', "surrogate"),
    "key of another type": ('{"process": "p", "key": 7}', r"body.key must be string \(got 7\)"),
    "key null": ('{"process": "p", "key": null}', r"body.key must be string \(got null\)"),
    "number of 16 digits": (
        '{"process": "p", "input": {"orders": [{}, {"id": 1234567890123456}]}}',
        r'input.orders\[1\].id is 1234567890123456; .* at most 15 significant .* Send it as text: "1234567890123456"',
    ),
    "number of 19 digits": ('{"process": "p", "input": {"at": 1795276800123456789}}', 'as text: "1795276800123456789"'),
    "double of 17 digits": ('{"process": "p", "input": {"a": {"b": -52.520006599999998}}}', "input.a.b is -52.520006"),
    "digits that a double does not have": ('{"process": "p", "input": {"n": 0.1000000000000000055}}', "input.n is 0.1"),
    "number beyond the doubles": ('{"process": "p", "input": {"n": 1e400}}', "input.n is 1e400"),
    "number below the doubles": ('{"process": "p", "input": {"n": 1e-400}}', "input.n is 1e-400"),
    "NaN in the input": ('{"process": "p", "input": {"n": NaN}}', "input.n is NaN"),
    "too large": (json.dumps({"process": "p", "request_id": "x"}).ljust(MAX_BODY_BYTES + 1), "65,537 bytes"),
}


_LITERALS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(1, 18).flatmap(lambda digits: st.integers(0, 10**digits)),
    st.just("") | st.from_regex(r"\.[0-9]{1,18}", fullmatch=True),
    st.just("") | st.from_regex(r"[eE][+-]?[0-9]{1,3}", fullmatch=True),
)


@given(literal=_LITERALS)
def test_a_number_that_is_accepted_survives_the_string_of_jsonata(literal: str) -> None:
    """The workflow's expressions read the input. `make jsonata` compares this $string with that of JSONata 2.0.6."""
    try:
        request = parse_request(delivery(f'{{"process":"p","input":{{"n":{literal}}}}}'))
    except InvalidRequest:
        return
    given = json.loads(request.to_json())
    kept = json.loads(jsonata_values.string(given), parse_float=Decimal, parse_int=Decimal)
    assert kept["input"]["n"] == Decimal(literal)


@pytest.mark.parametrize(
    "literal",
    ["0", "-0.0", "0e999", "1.0", "123456789012345", "-0.000123456789012345", "1e300", "100000000000000000000000"],
)
def test_a_number_of_15_digits_is_accepted(literal: str) -> None:
    assert parse_request(delivery(f'{{"process":"p","input":{{"n":{literal}}}}}')).input == {"n": json.loads(literal)}


@pytest.mark.parametrize(("body", "names"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_refused_with_a_reason_that_names_the_field(body: str, names: str) -> None:
    with pytest.raises(InvalidRequest, match=names) as refused:
        parse_request(delivery(body))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "name",
    ["--extra-py-files", "--enable-metrics", "--scriptLocation", "--JOB_NAME", "--conf", "--slotkeeper-execution"],
)
def test_an_argument_that_glue_or_slotkeeper_acts_on_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        parse_request(delivery({"process": "p", "arguments": {"--month": "1", name: "x"}}))


@pytest.mark.parametrize("name", ["--input_key", "--class_of", "--extra", "--job"])
def test_other_arguments_pass(name: str) -> None:
    assert parse_request(delivery({"process": "p", "arguments": {name: "x"}})).arguments == {name: "x"}


@pytest.mark.parametrize("group", ["p", "p#low", "another", "0123"])
def test_a_message_may_have_any_group(group: str) -> None:
    """The queue of a process is ordered by priority and time alone."""
    request = parse_request(delivery({"process": "p", "priority": "high"}, group=group))
    assert (request.process, request.priority) == ("p", "high")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"arguments": {"--text": "x" * MAX_BODY_BYTES}}, "body has 65,6.. bytes; it may have at most 65,536"),
        ({"input": {"text": "x" * MAX_INPUT_BYTES}}, "input has 32,7.. bytes; it may have at most 32,768"),
    ],
)
def test_a_request_that_is_too_large_is_named_without_its_content(body: dict[str, Any], reason: str) -> None:
    """Its row needs the rest: it is listed, and its caller is answered."""
    with pytest.raises(RequestTooLarge, match=reason) as refused:
        parse_request(delivery({"process": "p", "request_id": "x", "task_token": "t", "weight": 2, "key": "k"} | body))
    request = refused.value.request
    assert (request.arguments, request.input, request.weight, request.caller) == ({}, None, 2, caller_of("t"))
    assert request.key == "k"
    assert request.execution_name == execution_name("p", "x", 1, caller_of("t"))


@pytest.mark.parametrize(
    ("body", "added"),
    [
        ({}, {}),
        *(({"arguments": {"--a": "ü"}, "attempt": 3},) * 2,),
        ({"priority": "normal"}, {}),
        ({"priority": "low"}, {"priority": "low"}),
        ({"weight": 1}, {"weight": 1}),
        ({"weight": 2.0}, {"weight": 2}),
        ({"weight": MAX_WEIGHT}, {"weight": MAX_WEIGHT}),
        *(({"key": key}, {"key": key}) for key in KEYS),
    ],
)
def test_the_execution_input_has_priority_weight_and_key_only_if_the_request_states_them(
    body: dict[str, Any], added: dict[str, Any]
) -> None:
    request = parse_request(delivery({"process": "p", "request_id": "x"} | body))
    assert json.loads(request.to_json()) == {"process": "p", "arguments": {}, "request_id": "x", "attempt": 1} | added
    assert parse_request(delivery(request.to_json(), message_id="another")) == request


_json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_nearly_requests = st.fixed_dictionaries(
    {},
    optional={
        "process": st.text() | st.just("p") | _json_values,
        "arguments": _json_values | st.dictionaries(st.from_regex("^-{0,2}[a-z-]{0,12}"), st.text() | _json_values),
        "request_id": _json_values | st.text(),
        "attempt": _json_values | st.integers(),
        "priority": _json_values | st.sampled_from(PRIORITIES),
        "weight": _json_values | st.integers(0, MAX_WEIGHT + 1),
        "key": _json_values | st.text(max_size=70),
        "more": _json_values,
    },
)


@given(_nearly_requests | _json_values)
def test_every_body_is_a_request_or_is_refused_as_the_schema_says(body: Any) -> None:
    """Producers validate with the schema's file: a body must be valid for both or for neither."""
    text = json.dumps(body)
    try:
        request = parse_request(delivery(text))
    except InvalidRequest as refused:
        if not re.search("surrogate|bytes in UTF-8", str(refused)):  # of which a schema knows nothing
            with pytest.raises(jsonschema.ValidationError):
                SCHEMA.validate(json.loads(text))
    else:
        SCHEMA.validate(json.loads(request.to_json()))


def test_a_token_in_a_field_of_another_type_is_not_in_the_reason() -> None:
    with pytest.raises(InvalidRequest, match=r"request_id must be string \(got ") as refused:
        parse_request(delivery({"process": "p", "request_id": {"task_token": "the-secret-token"}}))
    assert "the-secret-token" not in str(refused.value)
