"""The operator command and the rate of a process: add, set, list, status, explain, doctor and repair."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.protocol import Candidate, Granted, Registration
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import parse_request
from slotkeeper_cli.doctor import slot_checks
from tests.cli.account_contents import edit, stored
from tests.cli.doctor_facts import NOW, process, queue, seen, waiting_request
from tests.cli.operator_account import Operator

ADD = ("process", "add", "api", "--limit", "5", "--target", "sample-job")


@pytest.fixture
def paced(operator: Operator) -> Operator:
    """The process sample may start one request an hour, and has just started one."""
    operator.processes.set_limit("sample", 5)
    operator.processes.set_rate("sample", Rate(1, 3600))
    assert operator.slots.reserve(Candidate("sample", "sample-a", 1), time.time()) == Granted()
    return operator


def _wait(operator: Operator, request_id: str) -> None:
    """Register a request that only the rate has refused."""
    delivery = replace(operator.send(request_id), sent_at=time.time())
    candidate = Candidate.of(parse_request(delivery), delivery)
    registered = operator.slots.wait(candidate, operator.process(), time.time() + 1800, is_early=True)
    assert registered is Registration.REGISTERED


def test_add_stores_the_rate_and_set_rate_changes_it(operator: Operator) -> None:
    added = operator.run(*ADD, "--rate", "10/minute", "--burst", "2")
    assert added.stdout == "api has 5 slots for Glue job sample-job. At most 10/minute, burst 2 may start.\n"
    assert operator.process("api").rate == Rate(10, 60, 2)
    assert [operator.audited()[-1][key] for key in ("rate", "burst")] == ["10/minute", 2]

    ended = operator.run("process", "set-rate", "api", "1/second", "--json")

    change = {"before": "10/minute, burst 2", "after": "1/second", "burst": 1}
    assert ended.json == {"process": "api", **change, "woken": False}
    assert operator.process("api").rate == Rate(1, 1)
    assert operator.audited()[-1].items() >= {"action": "process set-rate", **change}.items()
    assert operator.run("process", "set-rate", "api", "none").stdout == "api: 1/second -> any rate.\n"
    assert operator.process("api").rate is None


def test_set_rate_wakes_the_first_waiting_request(paced: Operator, woken: list[str]) -> None:
    _wait(paced, "b")
    assert "The first waiting request was woken." in paced.run("process", "set-rate", "sample", "none").stdout
    assert woken == ["handle-b"]


def test_list_and_status_show_the_rate_and_why_a_request_waits(paced: Operator) -> None:
    _wait(paced, "b")
    assert paced.run("process", "list", "--json").json["processes"][0]["rate"] == "1/hour"
    assert "1/hour" in paced.run("process", "list").stdout
    (shown,) = paced.run("status", "--json").json["processes"]
    (condition,) = shown["waiting"][0]["conditions"]
    assert (shown["rate"], condition["condition"], condition["rate"]) == ("1/hour", "rate", "1/hour")
    assert "at most 1/hour" in paced.run("status").stdout
    for command in (("status",), ("explain", "b")):
        assert "the rate of 1/hour permits the next start in 3" in " ".join(paced.run(*command).stdout.split())


def test_doctor_does_not_report_a_request_that_the_rate_keeps_waiting() -> None:
    waits = {"processes": [process(waiting={"normal": waiting_request("normal")})]}
    early = {"processes": [replace(waits["processes"][0], rate=Rate(1, 60), next_start=int(NOW * 1000) + 1)]}
    hidden = {"queues": {"RequestQueue": queue("RequestQueue", 180, ApproximateNumberOfMessagesNotVisible="1")}}
    assert len(seen(slot_checks.waiting, **waits, **hidden)) == 1
    assert seen(slot_checks.waiting, **early, **hidden) == []


MALFORMED: list[Any] = [{"S": "10/minute"}, {"M": {"count": {"S": "ten"}, "seconds": {"N": "60"}, "burst": {"N": "2"}}}]


@pytest.mark.parametrize("rate", MALFORMED)
def test_repair_restores_the_rate_of_the_audit_log(operator: Operator, rate: Any) -> None:
    operator.run(*ADD, "--rate", "10/minute", "--burst", "2")
    valid = stored(operator, "api")
    edit(operator, "rate", rate, "api")
    assert operator.run("process", "repair", "api", "--yes").exit_code == 0
    assert stored(operator, "api") == valid


def test_repair_pauses_a_process_whose_rate_no_source_states(operator: Operator) -> None:
    operator.processes.create("api", 5, "sample-job", rate=Rate(10, 60))
    edit(operator, "rate", {"S": "10/minute"}, "api")
    assert operator.run("process", "repair", "api", "--yes").exit_code == 0
    assert (operator.process("api").paused, operator.process("api").rate) == (True, None)


def test_repair_of_the_next_start_counts_a_whole_burst(operator: Operator) -> None:
    operator.processes.create("api", 5, "sample-job", rate=Rate(10, 60, 3))
    edit(operator, "next_start", None, "api")
    assert operator.run("process", "repair", "api", "--yes").exit_code == 0
    assert 0 < operator.process("api").seconds_until_due(time.time()) <= 6
