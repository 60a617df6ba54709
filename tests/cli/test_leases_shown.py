"""Leases in commands: each is judged by its end alone."""

from __future__ import annotations

import time
from io import BytesIO

import pytest

from tests.cli.account_contents import waiting
from tests.cli.operator_account import Operator, client


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
