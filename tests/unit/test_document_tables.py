"""The tables of the documents have the names of the template and the schemas, and the parameters' defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.account.completion_events import SCHEMA
from tests.template.parsing import parsed_template

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "slotkeeper" / "slotkeeper"
PARAMETERS: dict[str, Any] = parsed_template()["Parameters"]
MESSAGES = (ROOT / "docs" / "messages.md").read_text()
EVENTS = (ROOT / "docs" / "completion-events.md").read_text()
RETRIES_REFERENCE = (ROOT / "docs" / "retries-reference.md").read_text()


def _rows(page: str) -> list[list[str]]:
    """The cells of each row whose first cell is code."""
    lines = re.findall(r"^\| (`[^|]+`) \|(.*)\|$", page, re.MULTILINE)
    return [[first.strip("`"), *(cell.strip() for cell in rest.split("|"))] for first, rest in lines]


ROWS = {row[0]: row[1:] for row in _rows((ROOT / "docs" / "parameters.md").read_text())}


def test_the_page_has_every_parameter_and_no_other() -> None:
    assert ROWS.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_parameters_default_and_range_are_the_templates(name: str) -> None:
    declared, (default, allowed, _) = PARAMETERS[name], ROWS[name]

    assert default.startswith(f"`{declared['Default']}`" if declared["Default"] != "" else "empty")
    for bound in ("MinValue", "MaxValue", "MaxLength"):
        if bound in declared:
            assert re.search(rf"\b{declared[bound]}\b", allowed), bound
    for value in declared.get("AllowedValues", [])[:6]:
        assert str(value) in allowed


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("## A request", LAYER / "slots" / "request.schema.json"),
        ("## Work", LAYER / "retry" / "work.schema.json"),
        ("## Chat messages", LAYER / "chatbot" / "message.schema.json"),
    ],
)
def test_the_fields_of_a_message_are_its_schemas(heading: str, schema: Path) -> None:
    section = MESSAGES.split(f"\n{heading}\n")[1].split("\n##")[0]
    declared = json.loads(schema.read_text())

    assert {row[0]: row[1] == "yes" for row in _rows(section)} == {
        name: name in declared["required"] for name in declared["properties"]
    }


def test_the_page_of_retries_has_each_setting_of_a_downstream_and_no_other() -> None:
    declared = json.loads((LAYER / "retry" / "policy.schema.json").read_text())["definitions"]["downstream"]
    settings = {f"{part}.{name}" for part, of in declared["properties"].items() for name in of["properties"]}
    named = {name for row in _rows(RETRIES_REFERENCE) for name in row[0].split("`, `")}
    assert {name for name in named if name.partition(".")[0] in declared["properties"]} == settings


def test_the_page_of_events_has_each_field_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| [^|]+ \|$", EVENTS, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z_]+)`", row)) == sorted(SCHEMA["properties"])
