"""The operator command and the rate of a process: add, set, list, status, explain and repair."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slotkeeper.slots.rate import Rate, milliseconds
from tests.command.account_contents import edit
from tests.command.operator_account import Operator

ADD = ("process", "add", "api", "--limit", "5", "--target", "sample-job")


def test_add_stores_the_rate_and_set_rate_changes_it(operator: Operator) -> None:
    added = operator.run(*ADD, "--rate", "10/minute", "--burst", "2")
    assert added.stdout == "api has 5 slots for Glue job sample-job.\n"
    assert operator.process("api").rate == Rate(10, 60, 2)
    assert [operator.audited()[-1][key] for key in ("rate", "burst")] == ["10/minute", 2]

    ended = operator.run("process", "set-rate", "api", "1/second", "--json")

    change = {"before": "10/minute, burst 2", "after": "1/second", "burst": 1}
    assert ended.json == {"process": "api", **change}
    assert operator.process("api").rate == Rate(1, 1)
    assert operator.audited()[-1].items() >= {"action": "process set-rate", **change}.items()
    assert operator.run("process", "set-rate", "api", "none").stdout == "api: 1/second -> any rate.\n"
    assert operator.process("api").rate is None


def test_list_and_status_show_the_rate_and_why_a_request_waits(operator: Operator) -> None:
    assert operator.run("process", "set-rate", "sample", "1/hour").exit_code == 0
    assert operator.rings() == [{"process": "sample"}]
    edit(operator, "next_start", {"N": str(milliseconds(time.time()) + 3_600_000)})
    operator.wait("b")
    assert operator.run("process", "list", "--json").json["processes"][0]["rate"] == "1/hour"
    assert "1/hour" in operator.run("process", "list").stdout
    (shown,) = operator.run("status", "--json").json["processes"]
    (condition,) = shown["queue"]["first"]["reasons"]
    assert (shown["rate"], condition["condition"], condition["rate"]) == ("1/hour", "rate", "1/hour")
    text = " ".join(operator.run("status").stdout.split())
    assert "at most 1/hour" in text
    assert "the rate of 1/hour permits the next start in 3" in text


MALFORMED: list[Any] = [{"S": "10/minute"}, {"M": {"count": {"S": "ten"}, "seconds": {"N": "60"}, "burst": {"N": "2"}}}]


@pytest.mark.parametrize("rate", MALFORMED)
def test_repair_removes_a_malformed_rate_and_pauses_the_process(operator: Operator, rate: Any) -> None:
    operator.processes.create("api", 5, "sample-job", rate=Rate(10, 60))
    edit(operator, "rate", rate, "api")
    assert operator.run("process", "repair", "api", "--yes").exit_code == 0
    assert (operator.process("api").paused, operator.process("api").rate) == (True, None)


def test_repair_of_the_next_start_counts_a_whole_burst(operator: Operator) -> None:
    operator.processes.create("api", 5, "sample-job", rate=Rate(10, 60, 3))
    edit(operator, "next_start", None, "api")
    assert operator.run("process", "repair", "api", "--yes").exit_code == 0
    made = operator.process("api")
    assert made.rate is not None
    assert 0 < made.next_start - made.rate.lead - milliseconds(time.time()) <= 6000
