"""Leases in commands: each is judged by its end alone."""

from __future__ import annotations

import time
from io import BytesIO

import pytest

from tests.cli.account_contents import waiting
from tests.cli.operator_account import Operator, client
from tests.support.tables import create_table


@pytest.fixture
def alive(operator: Operator) -> str:
    """A lease that ends in a quarter of an hour."""
    return operator.lease("lease-alive", int(time.time()) + 900)


@pytest.fixture
def expired(operator: Operator) -> str:
    return operator.lease("lease-expired", int(time.time()) - 60)


def test_a_process_without_a_target_is_for_leases_only(operator: Operator) -> None:
    added = operator.run("process", "add", "licence", "--limit", "2")
    assert (added.exit_code, added.stdout) == (0, "licence has 2 slots for leases only.\n")
    assert "leases only" in operator.run("status", "licence").stdout
    refused = operator.run("request", "submit", "--process", "licence", "--request-id", "a")
    assert (refused.exit_code, "a: process licence is for leases only" in refused.stderr) == (2, True)
    assert waiting(operator, "RequestQueue") == []


@pytest.mark.usefixtures("alive")
def test_a_queued_request_shows_the_lease_that_has_the_slot(operator: Operator) -> None:
    operator.wait("b")

    assert "lease-alive  LEASED for " in operator.run("request", "show", "b").stdout


@pytest.mark.usefixtures("alive")
def test_reconcile_does_not_judge_a_lease_by_step_functions(operator: Operator) -> None:
    ended = operator.run("stack", "reconcile", "--check", "--json")

    assert ended.exit_code == 0
    assert (ended.json["dead"], ended.json["expired"]) == ([], [])
    assert "SlotTable matches" in operator.run("stack", "reconcile", "--check").stdout


def test_reconcile_leaves_an_expired_lease_to_the_janitor(
    operator: Operator, expired: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client("lambda"), "invoke", lambda **_: {"Payload": BytesIO(b"{}")})

    assert operator.run("stack", "reconcile", "--check", "--json").json["expired"] == [expired]
    assert "1 lease has expired: left to the janitor." in operator.run("stack", "reconcile").stdout


def test_doctor_reports_a_lease_only_long_after_its_end(operator: Operator, alive: str) -> None:
    """Its age of months is no finding, and it has no execution."""
    assert operator.run("doctor", "--only", "holders", "--only", "leases").exit_code == 0
    operator.processes.set_limit("sample", 2)
    operator.lease("lease-old", int(time.time()) - 3600)

    ended = operator.run("doctor", "--only", "holders", "--only", "leases")

    assert ended.exit_code == 5
    assert "process sample: lease lease-old has ended, and holds a slot" in ended.stdout
    assert alive not in ended.stdout


def test_restore_names_the_time_before_which_a_process_must_not_be_resumed(operator: Operator) -> None:
    """The code of a lease in the backup may still run, and the restored process has no holders."""
    create_table(operator.dynamodb, "restored", "process_name")
    until = {"old": int(time.time()) - 60, "new": int(time.time()) + 600}
    leases = {
        name: {"M": {"state": {"S": "LEASED"}, "since": {"N": "1"}, "until": {"N": str(end)}, "code": {"S": "c"}}}
        for name, end in until.items()
    }
    for process, names in {"leased": ("old", "new"), "ended": ("old",)}.items():
        item = {
            "process_name": {"S": process},
            "slot_limit": {"N": "7"},
            "slots_in_use": {"N": str(len(names))},
            "holders": {"M": {name: leases[name] for name in names}},
            "grants": {"N": "1"},
            "target": {"S": "sample-job"},
        }
        operator.dynamodb.put_item(TableName="restored", Item=item)

    ended = operator.run("stack", "restore", "--from", "restored")

    assert "leased: copied, paused. The backup has leases: do not resume it before 20" in ended.stdout
    assert "in 10 min" in ended.stdout
    assert "ended: copied, paused.\n" in ended.stdout
    assert "wait for the longest lease that your code takes" in ended.stdout
    assert (operator.process("leased").paused, dict(operator.process("leased").holders)) == (True, {})
