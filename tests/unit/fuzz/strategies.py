"""Untrusted inputs: texts as SQS delivers them, JSON of any shape, bodies close to valid ones, DynamoDB items."""

from __future__ import annotations

import json
import string
from typing import Any

from hypothesis import strategies as st

from tests.simulation.account.queues import ALLOWED

# The characters that SQS accepts in a body (SQS API Reference, SendMessage), without halves of surrogate pairs.
SQS_CHARACTERS = st.characters(
    exclude_categories=["Cs"],
    exclude_characters=[chr(c) for c in range(32) if chr(c) not in "\t\n\r"] + ["\ufffe", "\uffff"],
)
sqs_texts = st.text(SQS_CHARACTERS, min_size=1, max_size=60)
groups = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1, max_size=128)
texts = st.text(max_size=20)

numbers = st.integers() | st.floats() | st.sampled_from([0, -1, 1, 10**38, -(10**400), 1e308, 2**63, 1_000_001])
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
# JSON that few parsers except Python's accept, or that is expensive to parse.
odd_json = st.sampled_from(
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "1" * 5000,
        "NaN",
        '{"process": "p", "process": "q"}',
        '"\\ud800"',
        "\ufeff{}",
        " ",
        '{"request_id": "r", "payload": {"a": 1e999}}',
    ]
)


@st.composite
def near_misses(draw: st.DrawFn, valid: dict[str, Any]) -> dict[str, Any]:
    """A valid object with up to two changes."""
    made: dict[str, Any] = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(valid)) | texts)
        if draw(st.booleans()):
            made[name] = draw(values)
        else:
            made.pop(name, None)
    return made


def bodies(valid: dict[str, Any]) -> st.SearchStrategy[str]:
    """Bodies as SQS may deliver them, most of them close to a valid one."""
    written = st.builds(
        lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only),
        near_misses(valid) | near_misses(valid) | values,
        st.booleans(),
    )
    return (written | sqs_texts | odd_json).filter(lambda text: bool(text) and ALLOWED.fullmatch(text) is not None)


# Numbers as DynamoDB returns them: up to 38 digits, exponents from -130 to 125.
_LARGE_AND_SMALL = ["9" * 38, "-" + "9" * 38, "1" + "0" * 125, "0." + "0" * 129 + "1"]
_USUAL = ["0", "1", "-1", "3", "1.5", "500", "501", "1800000000", "1800000000000", "1800000000.123"]
item_numbers = st.sampled_from([*_USUAL, *_LARGE_AND_SMALL]) | st.integers(-(10**6), 10**10).map(str)
item_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["RESERVED", "RUNNING", "1", "true", "job", "handle-1", "0" * 40]
)
attributes = st.recursive(
    st.fixed_dictionaries({"N": item_numbers})
    | st.fixed_dictionaries({"S": item_texts})
    | st.fixed_dictionaries({"BOOL": st.booleans()})
    | st.just({"NULL": True})
    | st.fixed_dictionaries({"SS": st.lists(item_texts, min_size=1, max_size=3, unique=True)})
    | st.fixed_dictionaries({"NS": st.lists(item_numbers, min_size=1, max_size=3, unique=True)}),
    lambda inner: (
        st.fixed_dictionaries({"L": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"M": st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=3)})
    ),
    max_leaves=6,
)


@st.composite
def items(draw: st.DrawFn, valid: dict[str, Any]) -> dict[str, Any]:
    """A valid item in which up to three attributes, at any depth, are replaced, added or removed."""
    made: dict[str, Any] = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(0, 3))):
        inside = made
        while True:
            name = draw(st.sampled_from([*sorted(inside), "more"]))
            deeper = inside.get(name, {}).get("M") if isinstance(inside.get(name), dict) else None
            if not deeper or draw(st.booleans()):
                break
            inside = deeper
        if draw(st.booleans()):
            inside[name] = draw(attributes)
        else:
            inside.pop(name, None)
    return made
