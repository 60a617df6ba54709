"""The tables of the documents agree with the template and the schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.retry.downstream.health import DownstreamSettings
from tests.support.template import parsed_template
from tests.workflow.walks import all_walks

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "slotkeeper" / "slotkeeper"
PARAMETERS: dict[str, Any] = parsed_template()["Parameters"]
MESSAGES = (ROOT / "docs" / "messages.md").read_text()
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


def test_the_page_has_the_order_of_the_consoles_parameter_groups() -> None:
    template: Any = parsed_template()
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]

    assert [name for group in groups for name in group["Parameters"]] == list(ROWS)


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


POLICY_SCHEMA = json.loads((LAYER / "retry" / "policy.schema.json").read_text())
DOWNSTREAM_FIELDS = [
    (part, name, field)
    for part, settings in POLICY_SCHEMA["definitions"]["downstream"]["properties"].items()
    for name, field in settings["properties"].items()
]


@pytest.mark.parametrize(("part", "name", "field"), DOWNSTREAM_FIELDS, ids=lambda value: str(value)[:20])
def test_a_downstreams_setting_has_its_default_and_its_bounds(part: str, name: str, field: dict[str, Any]) -> None:
    rows = {one: cells for row in _rows(RETRIES_REFERENCE) for one in row[0].split("`, `") for cells in [row[1:]]}
    _, meaning = rows[f"{part}.{name}"]
    default = getattr(getattr(DownstreamSettings(), part), name.removesuffix("_seconds"))
    shown = RETRIES_REFERENCE.split(f"`{part}.{name}`")[1].split("|")[1]

    if isinstance(default, tuple):
        assert default[0] in shown
    else:
        assert re.search(rf"\b{json.dumps(default).removesuffix('.0')}\b", shown)
    if "maximum" in field and name.endswith("_seconds"):
        assert f"{field['maximum']:,}" in meaning


def test_the_codes_of_dead_letter_messages_are_the_starters() -> None:
    code = (LAYER / "slots" / "admission.py").read_text()
    given = set(re.findall(r'(?:_dead_letter\(delivery, now,|return) "(\w+)", ', code))
    (row,) = (row for row in _rows(MESSAGES) if row[0] == "code")

    assert set(re.findall(r"`(\w+)`", row[1])) == given


COSTS = (ROOT / "docs" / "costs.md").read_text()


@pytest.mark.parametrize("section", COSTS.split("\n| | arithmetic | USD |\n")[1:], ids=range(7))
def test_each_cost_is_the_result_of_its_arithmetic(section: str) -> None:
    together, total = 0.0, None
    for line in section.split("\n\n", maxsplit=1)[0].splitlines()[1:]:
        what, arithmetic, result = (cell.strip() for cell in line.strip("|").split("|"))
        if what.startswith("**"):
            total = float(result.strip("*"))
            continue
        product = 1.0
        for number in re.findall(r"\d[\d,]*\.?\d*", arithmetic):
            product *= float(number.replace(",", ""))
        assert float(result) == pytest.approx(product, abs=0.00005), what
        together += product
    assert total == pytest.approx(together, abs=0.005)


def test_the_costs_count_the_states_and_alarms_of_the_template() -> None:
    straight = min(
        (walk.names for walk in all_walks() if walk.status == "SUCCEEDED" and "WakeWaiting" in walk.names),
        key=len,
    )
    alarms: dict[str, Any] = parsed_template()["Resources"]
    watched = {None: 0, "HasChatbot": 0, "HasWorker": 0, "HasRefresher": 0, "HasRetryReport": 0}
    for alarm in alarms.values():
        if alarm["Type"] == "AWS::CloudWatch::Alarm":
            given = alarm["Properties"].get("Metrics", [])
            watched[alarm.get("Condition")] += max(1, sum("MetricStat" in metric for metric in given))

    assert f"{len(straight)} states on the way" in COSTS
    stated = re.findall(r"^\| alarms, .*\| (\d+) metrics x \$0\.10", COSTS, re.MULTILINE)
    assert stated == [str(watched[condition]) for condition in (None, "HasChatbot", "HasWorker")]
