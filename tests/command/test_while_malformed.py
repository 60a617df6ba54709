"""Answers of the commands and the console while the item of a process is malformed: they name what is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.command.account_contents import edit, stored
from tests.command.explain_situations import SITUATIONS
from tests.command.operator_account import Operator
from tests.command.situations import Situation

_WRONG = ({"S": ""}, {"N": "1" + "0" * 30}, {"NULL": True})


@pytest.mark.parametrize("row", SITUATIONS.values(), ids=SITUATIONS)
def test_every_state_is_explained_although_the_process_is_malformed(row: Situation, operator: Operator) -> None:
    names = row.state(operator) or {}
    existing = {getattr(process, "name", "sample") for process in operator.processes.all()}
    for name in existing:
        edit(operator, "slot_limit", {"S": "1"}, name)
    question = shlex.split(row.question.format(**names))

    data = operator.run(*question, "--json").json

    processes = [each["process"] for each in data.get("found", [])] or [data.get("process", "sample")]
    is_named = any("slot_limit must be" in each["why"] for each in data["not_read"])
    assert is_named == (not existing.isdisjoint(processes)), data["not_read"]


def test_each_malformed_attribute_is_named(operator: Operator) -> None:
    operator.processes.set_limit("sample", 3)
    operator.hold("a")
    operator.lease("lease-1", 1_790_000_090)
    operator.wait("w", weight=2)
    operator.run("request", "cancel", "c", "--process", "sample", "--yes")
    operator.run("process", "set-rate", "sample", "10/minute")
    whole = stored(operator, "sample")

    for path in _paths(whole):
        for value in _WRONG:
            edit(operator, path, value)
            for command in (("explain", "w"), ("status", "sample")):
                ended = operator.run(*command)
                answer = ended.stdout + ended.stderr
                is_named = path.split("/")[0] in answer and "malformed" in answer
                assert is_named or ended.exit_code == 0, (path, value, command, answer)
            operator.dynamodb.put_item(TableName=operator.outputs["SlotTableName"], Item=whole)


def _paths(item: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The path of each attribute but the key, and of those in its maps."""
    for name, value in item.items():
        if above or name != "process_name":
            yield above + name
            yield from _paths(value.get("M", {}), f"{above}{name}/")
