"""The page on completion events: its examples are valid, and its table has the schema's fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

from slotkeeper.events import BREAKER_DETAIL_TYPES, DETAIL_TYPES
from tests.support.completion_events import BREAKER_SCHEMA, LIMITED_FLOW, SCHEMA, checked

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "completion-events.md").read_text()
*EXAMPLES, BREAKER_EXAMPLE = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def test_each_kind_of_event_has_a_valid_example() -> None:
    (event,) = [example for example in EXAMPLES if "detail-type" in example]
    details = [event["detail"], *(example for example in EXAMPLES if "detail-type" not in example)]
    for detail in details:
        checked({"Source": "slotkeeper", "DetailType": DETAIL_TYPES[detail["status"]], "Detail": detail})
    assert (event["source"], event["detail-type"]) == ("slotkeeper", DETAIL_TYPES["SUCCEEDED"])
    assert {(detail["flow"], detail["status"]) for detail in details} == {
        (LIMITED_FLOW, "SUCCEEDED"),
        ("worker", "SUCCEEDED"),
        (LIMITED_FLOW, "FAILED"),
        (LIMITED_FLOW, "DEAD_LETTERED"),
    }


def test_the_table_has_every_field_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert sorted(named) == sorted(SCHEMA["properties"])


def test_each_kind_of_event_is_explained() -> None:
    assert all(f"| `{kind}` |" in PAGE for kind in DETAIL_TYPES.values())
    assert all(f"`{kind}`" in PAGE for kind in BREAKER_DETAIL_TYPES.values())


def test_the_example_of_a_breakers_event_is_valid_and_has_every_field() -> None:
    event = BREAKER_EXAMPLE
    detail = checked({"Source": event["source"], "DetailType": event["detail-type"], "Detail": event["detail"]})
    assert detail.keys() == BREAKER_SCHEMA["properties"].keys()
