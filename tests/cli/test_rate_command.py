"""The operator command and the rate of a process: add, set, list, status, explain and repair."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slotkeeper.slots.rate import Rate, milliseconds
from tests.cli.account_contents import edit
from tests.cli.operator_account import Operator

ADD = ("process", "add", "api", "--limit", "5", "--target", "sample-job")


@pytest.fixture
def paced(operator: Operator) -> Operator:
    """The process sample may start one request an hour, has just started one, and another one is queued."""
    operator.processes.set_limit("sample", 5)
    operator.processes.set_rate("sample", Rate(1, 3600))
    edit(operator, "next_start", {"N": str(milliseconds(time.time()) + 3_600_000)})
    operator.wait("b")
    return operator


def test_add_stores_the_rate_and_set_rate_changes_it(operator: Operator) -> None:
    added = operator.run(*ADD, "--rate", "10/minute", "--burst", "2")
    assert added.stdout == "api has 5 slots for Glue job sample-job. At most 10/minute, burst 2 may start.\n"
    assert operator.process("api").rate == Rate(10, 60, 2)
    assert [operator.audited()[-1][key] for key in ("rate", "burst")] == ["10/minute", 2]

    ended = operator.run("process", "set-rate", "api", "1/second", "--json")

    change = {"before": "10/minute, burst 2", "after": "1/second", "burst": 1}
    assert ended.json == {"process": "api", **change}
    assert operator.process("api").rate == Rate(1, 1)
    assert operator.audited()[-1].items() >= {"action": "process set-rate", **change}.items()
    assert operator.run("process", "set-rate", "api", "none").stdout == "api: 1/second -> any rate.\n"
    assert operator.process("api").rate is None


def test_set_rate_rings(operator: Operator) -> None:
    operator.run("process", "set-rate", "sample", "1/second")
    assert operator.rings() == [{"process": "sample"}]


def test_list_and_status_show_the_rate_and_why_a_request_waits(paced: Operator) -> None:
    assert paced.run("process", "list", "--json").json["processes"][0]["rate"] == "1/hour"
    assert "1/hour" in paced.run("process", "list").stdout
    (shown,) = paced.run("status", "--json").json["processes"]
    (condition,) = shown["queue"]["first"]["reasons"]
    assert (shown["rate"], condition["condition"], condition["rate"]) == ("1/hour", "rate", "1/hour")
    assert "at most 1/hour" in paced.run("status").stdout
    for command in (("status",), ("explain", "b")):
        assert "the rate of 1/hour permits the next start in 3" in " ".join(paced.run(*command).stdout.split())


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
