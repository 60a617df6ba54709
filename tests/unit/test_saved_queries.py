"""The saved queries find lines that the functions log, and these lines have each field of the query."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from tests.simulation.account.account import AwsAccount
from tests.template.watched import QUERIES, widgets
from tests.unit import function_output
from tests.unit.chatbot_account import ChatbotAccount
from tests.unit.conftest import Load

FILL_IN = {"YOUR-REQUEST-ID": "order-1", "ITS-EXECUTION": execution_name("p", "order-1", 1)}
# Step Functions guide, "Using CloudWatch Logs to log execution history".
OF_WORKFLOWS = {"type", "execution_arn", "details.error", "details.cause"}
FUNCTIONS = ("count", "latest", "coalesce", "ispresent")
WORDS = {*("fields", "filter", "stats", "sort", "limit", "as", "by", "and", "or", "like", "asc", "desc"), *FUNCTIONS}
TEXT = r"\"[^\"]*\"|'[^']*'|/[^/]*/"


@dataclass(frozen=True)
class Query:
    """A query of Logs Insights, in the part of its language that the saved queries use."""

    text: str
    functions: tuple[str, ...]

    @property
    def fields(self) -> set[str]:
        bare = re.sub(TEXT, "", self.text)
        names = set(re.findall(r"(?<![\w.@])[A-Za-z_][\w.]*", bare)) - WORDS
        return names - set(re.findall(r"\bas (\w+)", bare))

    def matches(self, line: dict[str, Any]) -> bool:
        """Whether a line passes each filter."""
        conditions = re.findall(r"^(?:\| )?filter (.+)$", self.text, re.MULTILINE)
        return all(_any(condition, line) for condition in conditions)


def _any(condition: str, line: dict[str, Any]) -> bool:
    return any(all(_one(each, line) for each in part.split(" and ")) for part in condition.split(" or "))


def _one(comparison: str, line: dict[str, Any]) -> bool:
    if present := re.fullmatch(r"ispresent\(([\w.]+)\)", comparison):
        return present[1] in line
    name, operator, value = re.fullmatch(rf"([\w.]+) (=|like) ({TEXT})", comparison.strip()).groups()  # type: ignore[union-attr]
    if operator == "=":
        return bool(line.get(name) == value[1:-1])
    return bool(re.search(value[1:-1], str(line.get(name, ""))))


def _query(text: str, groups: list[str]) -> Query:
    for blank, filled in FILL_IN.items():
        text = text.replace(blank, filled)
    return Query(text, tuple(_snake(group.removesuffix("LogGroup")) for group in groups))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _of_the_dashboard() -> Query:
    (widget,) = (widget for widget in widgets() if widget["type"] == "log")
    source, rest = widget["properties"]["query"].split(" | ", 1)
    return _query(rest.replace(" | ", "\n| "), re.findall(r"'(\w+)'", source))


ALL = {name: _query(properties["QueryString"], properties["LogGroupNames"]) for name, properties in QUERIES.items()} | {
    "of the dashboard": _of_the_dashboard()
}


@pytest.fixture
def lines(load: Load, chat: ChatbotAccount, work_account: AwsAccount) -> dict[str, list[dict[str, Any]]]:
    """Function -> its log lines, including its metrics, as Logs Insights reads them."""
    return {
        function: [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        for function, text in function_output.by_function(load).items()
    }


def test_every_query_finds_lines_and_in_them_every_field(lines: dict[str, list[dict[str, Any]]]) -> None:
    """One test for all queries, since producing the logs takes a second."""
    for name, query in ALL.items():
        matching = [line for function in query.functions for line in lines.get(function, []) if query.matches(line)]
        written = {field for line in matching for field in line} | (
            OF_WORKFLOWS if "workflow" in query.functions else set()
        )
        assert matching or query.functions == ("workflow",), name
        assert query.fields <= written, (name, query.fields - written)


def test_the_query_of_one_request_finds_the_lines_of_each_function(lines: dict[str, list[dict[str, Any]]]) -> None:
    query = ALL["RequestStoryQuery"]
    assert {function for function in query.functions if any(map(query.matches, lines.get(function, [])))} == {
        "ending",
        "janitor",
        "starter",
        "worker",
    }
    execution = FILL_IN["ITS-EXECUTION"]
    assert query.matches({"message": "Freed the slot of a workflow that has ended", "execution": execution})
    assert query.matches({"type": "TaskFailed", "execution_arn": f"arn:aws:states:::execution:workflow:{execution}"})
