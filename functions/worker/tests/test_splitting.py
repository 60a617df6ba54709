"""Splitting: the part of each line, and inputs that cannot be split."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.worker.src.work import splitting
from slotkeeper.retry.errors import Poison

VALUES = st.one_of(st.text(max_size=3), st.booleans(), st.integers(-3, 3))
RECORDS = st.lists(st.fixed_dictionaries({"k": VALUES, "other": st.text(max_size=5)}), max_size=12)


def split(content: bytes, by: str = "k") -> dict[str, bytes]:
    return {part.value: bytes(part.content) for part in splitting.split([content], by)}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@given(RECORDS, st.integers(1, 40), st.booleans(), st.sampled_from([b"", b"\r", b" \t"]))
def test_every_line_is_kept_once_and_in_order_for_any_chunks(
    records: list[Any], cut: int, escaped: bool, ending: bytes
) -> None:
    lines = [(text_of(each["k"]), json.dumps(each, ensure_ascii=escaped).encode() + ending) for each in records]
    content = b"\n".join(line for _, line in lines)
    expected: dict[str, list[bytes]] = {}
    for value, line in lines:
        expected.setdefault(value, []).append(line + b"\n")

    parts = splitting.split((content[at : at + cut] for at in range(0, len(content), cut)), "k")

    assert [(part.value, bytes(part.content)) for part in parts] == [
        (value, b"".join(kept)) for value, kept in expected.items()
    ]
    assert sum(part.records for part in parts) == len(records)


def test_a_last_line_without_a_line_feed_gets_one_and_empty_lines_are_not_records() -> None:
    (part,) = splitting.split([b'\n{"k": 1}\n \r\n\n{"k":1}'], "k")
    assert (bytes(part.content), part.records) == (b'{"k": 1}\n{"k":1}\n', 2)


def test_only_a_line_feed_ends_a_line() -> None:
    line = '{"k":\r1, "text": "\u2028\u0085"}\n'.encode()
    assert split(line) == {"1": line}


def test_values_are_compared_by_their_text_and_numbers_by_their_digits() -> None:
    lines = [b'{"k": %s}\n' % value for value in (b"1", b'"1"', b"1.0", b"1e400", b"true", b'"true"', b"9" * 5000)]
    assert list(split(b"".join(lines))) == ["1", "1.0", "1e400", "true", "9" * 5000]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"k": "\xff"}', "line 2 is not UTF-8 (byte 8 of it)"),
        (b"city,n", "line 2 is not JSON: Expecting value"),
        (b'{"k": 1} {"k": 2}', "line 2 is not JSON: Extra data"),
        (b'{"k": 1, "n": NaN}', "line 2 is not JSON: NaN is not JSON"),
        (b"[" * 100_000, "line 2 is not JSON: "),
        (b"[1]", "line 2 is an array; every line must be a JSON object"),
        (b"null", "line 2 is null; every line must be a JSON object"),
        (b"7", "line 2 is a text or a number; every line must be a JSON object"),
        (b'{"K": 1}', "line 2 has no field 'k', which every line must have"),
        (b'{"k": null}', "'k' of line 2 is null; it must be a text, a number or a boolean"),
        (b'{"k": {"a": 1}}', "'k' of line 2 is an object; it must be"),
        (b'{"k": ["a"]}', "'k' of line 2 is an array; it must be"),
        (b'{"k": "\\ud800"}', "'k' of line 2 contains half of a surrogate pair"),
    ],
)
def test_an_invalid_line_is_refused_with_its_number_and_the_expected_value(line: bytes, reason: str) -> None:
    with pytest.raises(Poison) as refused:
        split(b'{"k": 1}\n' + line + b"\n")
    assert str(refused.value).startswith(reason)


def test_a_thousand_values_are_split_and_one_more_is_refused() -> None:
    lines = [b'{"k": %d}\n' % number for number in range(1001)]
    assert len(split(b"".join(lines[:1000] * 2))) == 1000
    with pytest.raises(Poison, match="line 1001 has value 1001 of 'k'; up to 1000 are allowed"):
        split(b"".join(lines))


def test_a_line_that_is_too_long_is_refused_before_it_is_complete() -> None:
    taken: list[int] = []

    def chunks() -> Any:
        for number in range(10):
            taken.append(number)
            yield b" " * (splitting.MAX_LINE_BYTES // 2)

    with pytest.raises(Poison, match="line 1 is too long: a line may have at most 1048576 bytes"):
        splitting.split(chunks(), "k")
    assert taken == [0, 1, 2]


def test_the_longest_line_is_split() -> None:
    line = b'{"k": 1}'.ljust(splitting.MAX_LINE_BYTES) + b"\n"
    assert split(line) == {"1": line}
