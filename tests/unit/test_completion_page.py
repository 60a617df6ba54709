"""The pages on completion news and encryption: examples are events, tables the schema's, commands those of the APIs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import botocore.session
import pytest

from slotkeeper.events import DETAIL_TYPES
from tests.support.news import SCHEMA, checked
from tests.unit.test_document_commands import Run, _check, _shell

DOCS = Path(__file__).parents[2] / "docs"
NEWS = (DOCS / "completion-news.md").read_text()
ENCRYPTION = (DOCS / "encryption.md").read_text()
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", NEWS, re.DOTALL)]


def test_there_is_an_example_of_each_kind_and_each_is_valid() -> None:
    (event,) = [example for example in EXAMPLES if "detail-type" in example]
    details = [event["detail"], *(example for example in EXAMPLES if "detail-type" not in example)]
    for detail in details:
        checked({"Source": "slotkeeper", "DetailType": DETAIL_TYPES[detail["status"]], "Detail": detail})
    assert (event["source"], event["detail-type"]) == ("slotkeeper", DETAIL_TYPES["SUCCEEDED"])
    assert {(detail["flow"], detail["status"]) for detail in details} == {
        ("gated", "SUCCEEDED"),
        ("worker", "SUCCEEDED"),
        ("gated", "FAILED"),
        ("gated", "DEAD_LETTERED"),
    }


def test_the_table_has_every_field_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| [^|]+ \|$", NEWS, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert sorted(named) == sorted(SCHEMA["properties"])


def test_each_kind_of_event_is_explained() -> None:
    assert all(f"| `{kind}` |" in NEWS for kind in DETAIL_TYPES.values())


@pytest.mark.parametrize(
    ("page", "calls"),
    [
        (
            NEWS,
            {
                "cloudformation create-stack",
                "sqs get-queue-attributes",
                "events put-rule",
                "events put-targets",
                "events describe-event-bus",
                "events create-archive",
                "events describe-archive",
                "events describe-rule",
                "events start-replay",
            },
        ),
        (
            ENCRYPTION,
            {
                "cloudformation create-stack",
                "cloudformation describe-stacks",
                "cloudwatch describe-alarms",
                "cloudwatch set-alarm-state",
                "cloudwatch describe-alarm-history",
            },
        ),
    ],
    ids=["completion news", "encryption"],
)
def test_the_apis_take_every_call_of_the_pages(tmp_path: Path, page: str, calls: set[str]) -> None:
    (tmp_path / "docs").symlink_to(DOCS)
    blocks = [block for block in _shell(page) if not block.startswith("sam ")]
    run = Run(tmp_path, *blocks, QUEUE_URL="https://queue.invalid")
    session = botocore.session.Session()
    assert {_check(arguments, session, tmp_path) for _, arguments in run.calls} == calls
