"""Failures of one cause have one fingerprint; numbers, ids, times and quoted values do not change it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.failures.analysis import MAX_FINGERPRINT_CHARACTERS, fingerprint
from slotkeeper.retry.ledger import MAX_ERROR_CHARACTERS
from tests.profiles import share

_numbers = st.integers().map(str) | st.floats(allow_nan=False, allow_infinity=False).map(str)
_names = st.from_regex(r"[a-z]{1,8}[-_]?[0-9]{1,8}[a-z]{0,3}", fullmatch=True)
_ids = st.uuids().map(str).filter(lambda text: any(map(str.isalpha, text))) | _names
_hexadecimals = st.text("0123456789abcdef", min_size=16, max_size=40).filter(lambda text: not text.isdigit())
_times = st.datetimes().map(lambda moment: moment.isoformat() + "Z")
_quoted = st.text("abc 12-/.", max_size=20).map(lambda text: f"'{text}'")
_queries = st.text("abc=&12%", max_size=20)
_TEMPLATES = (
    ("{} s are left of the attempt", _numbers),
    ("order {} was not found", _ids),
    ("digest {}: mismatch", _hexadecimals),
    ("expired at {}, and was refused", _times),
    ("no file {} in the bucket", _quoted),
    ("HTTP 503 from https://api.example/orders?{} after a while", _queries),
    ("of https://api.example/orders/{}/items", _ids),
)
_words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), min_size=1, max_size=6).map(" ".join)


@share(0.3)
@given(st.sampled_from(_TEMPLATES).flatmap(lambda each: st.tuples(st.just(each[0]), each[1], each[1])))
def test_messages_that_differ_only_in_variable_parts_have_one_fingerprint(drawn: tuple[str, str, str]) -> None:
    template, one, other = drawn
    assert fingerprint(template.format(one)) == fingerprint(template.format(other))


@share(0.3)
@given(_words, _words)
def test_texts_without_variable_parts_differ_if_they_are_different(one: str, other: str) -> None:
    assert (fingerprint(one) == fingerprint(other)) is (one == other)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Unavailable: HTTP 503 after 1.5 s", "HTTP 503 after <n> s"),
        ("HTTP/1.1 404 Not Found", "HTTP/1.1 404 Not Found"),
        ("status code: 429", "status code: 429"),
        ("the API failed with 503", "the API failed with 503"),
        (
            "the API refuses this invoice with 404: no such customer",
            "the API refuses this invoice with 404: no such customer",
        ),
        ("failed with 503 of 1000 rows", "failed with <n> of <n> rows"),
        ("failed with 503.5 s left", "failed with <n> s left"),
        ("404 Client Error: Not Found for url", "404 Client Error: Not Found for url"),
        ("503", "503"),
        ("the API failed with 503 after 2 s", "the API failed with 503 after <n> s"),
        ("returned 404 for order 8812", "returned 404 for order <n>"),
        ("HTTPError: 502 Server Error: Bad Gateway", "HTTPError: 502 Server Error: Bad Gateway"),
        ("order 17: (503) Service Unavailable", "order <n>: (503) Service Unavailable"),
        ("Response code 404 for order 17", "Response code 404 for order <n>"),
        ("statusCode: 503", "statusCode: 503"),
        ("gRPC status 14: UNAVAILABLE", "gRPC status 14: UNAVAILABLE"),
        ("exit code 137", "exit code 137"),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("ORA-00942: table or view does not exist", "ORA-00942: table or view does not exist"),
        ("SQLSTATE[42P01]: undefined table", "SQLSTATE[42P01]: undefined table"),
        ("code 123456 of order 7", "code <n> of order <n>"),
        ("429 requests", "<n> requests"),
        ("shards 1, 2, 3 are down", "shards <n> are down"),
        ("the request's sender can't be read: it's empty", "the request's sender can't be read: it's empty"),
        ('no "city" in {"a": 1}', "no <value> in {<value>: <n>}"),
        ("", ""),
        ("line one\n  line two", "line one line two"),
        ("https://api.example/v2/a#part", "https://api.example/<id>/a?<query>"),
    ],
)
def test_a_fingerprint_keeps_what_is_specific_to_the_cause(error: str, expected: str) -> None:
    assert fingerprint(error, "Unavailable") == expected


@pytest.mark.parametrize(
    "template", ["the file '{}' is missing in the bucket of the request", "{} is not a known name"]
)
def test_a_text_that_the_ledger_has_cut_has_the_fingerprint_of_its_beginning(template: str) -> None:
    cut = [(template.format("x1" * length) + " and so on" * 30)[:MAX_ERROR_CHARACTERS] for length in (5, 20)]
    ends = [fingerprint(text)[:100] for text in cut]
    assert ends[0] == ends[1]
    assert len(fingerprint(cut[0])) <= MAX_FINGERPRINT_CHARACTERS


def test_a_quote_that_the_ledger_has_cut_is_a_value() -> None:
    assert fingerprint(("no such key: '" + "a b " * 100)[:MAX_ERROR_CHARACTERS]) == "no such key: <value>"
