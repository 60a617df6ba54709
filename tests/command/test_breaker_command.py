"""`slotkeeper retry breaker` and `slotkeeper retry limit`, and what other commands show of breakers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import DownstreamTable, NotRead
from slotkeeper.retry.downstream.health import (
    Answer,
    Breaker,
    Budget,
    Call,
    Concurrency,
    DownstreamSettings,
    Health,
    Permit,
    State,
)
from slotkeeper.retry.message import Message
from tests.command.account_contents import malform_downstream, retry_work
from tests.command.operator_account import Operator, StubbedCalls

SETTINGS, MOST = DownstreamSettings(most=10), 10


def with_breaker(health: Health, **fields: Any) -> Health:
    return replace(health, breaker=replace(health.breaker, **fields))


class Watched:
    """The downstreams of the operator's account."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.table = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])
        self.policy: str | None = "{}"

    def parameter(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer of SSM."""
        assert asked["Name"] == self.operator.outputs["RetryPolicyParameterName"]
        if self.policy is None:
            return {"Error": {"Code": "ParameterNotFound", "Message": ""}}
        return {"Parameter": {"Value": self.policy}}

    def put(self, name: str, health: Health) -> Health:
        self.table.change(name, lambda _: (health, None))
        return health

    def failing(self, name: str = "default", failures: int = 18) -> Health:
        """A downstream that the worker has called until its breaker opened."""
        health, now = Health(), time.time()
        for number in range(failures):
            health, permit = rules.ask(health, SETTINGS, Permit(f"p{number}", now + 60), now)
            assert isinstance(permit, Permit)
            health, _ = rules.report(health, SETTINGS, permit, Call(Answer.FAILED, 1.0), now)
        return self.put(name, health)

    def shown(self, *arguments: str) -> list[dict[str, Any]]:
        ended = self.operator.run("retry", "breaker", "show", *arguments, "--json")
        assert ended.exit_code == 0, ended.stderr
        downstreams: list[dict[str, Any]] = ended.json["downstreams"]
        return downstreams


@pytest.fixture
def watched(operator: Operator) -> Iterator[Watched]:
    made = Watched(operator)
    operator.parameters["WorkerConcurrency"] = str(MOST)
    with StubbedCalls("ssm", {"GetParameter": made.parameter}):
        yield made


# show --------------------------------------------------------------------------------------------------------------


def test_show_lists_the_downstreams_of_the_table_and_of_the_policy(operator: Operator, watched: Watched) -> None:
    watched.put("mail", Health(Breaker(healthy=True)))
    watched.policy = json.dumps({"downstreams": {"maps": {}}})
    assert [one["downstream"] for one in watched.shown()] == ["default", "mail", "maps"]
    assert [one["downstream"] for one in watched.shown("mail")] == ["mail"]


def test_show_states_the_lease_of_a_probe(operator: Operator, watched: Watched) -> None:
    now = time.time()
    opened = with_breaker(watched.failing(), probe_at=now - 1)
    probing, permit = rules.ask(opened, SETTINGS, Permit("probe", now + 300), now)
    assert isinstance(permit, Permit)
    watched.put("default", probing)
    (one,) = watched.shown()
    assert (one["state"], one["permitted_callers"], one["under_way"]) == ("HALF_OPEN", 1, 1)
    assert one["probe_until"] is not None
    assert "a probe is under way, until" in operator.run("retry", "breaker", "show").stdout
    watched.put("default", replace(with_breaker(probing, probe_at=now - 0.1), permits={}))
    (one,) = watched.shown()
    assert (one["state"], one["failures"], one["next_probe_at"] is not None) == ("OPEN", 18, True)
    text = operator.run("retry", "breaker", "show").stdout
    assert "0 callers permitted while the breaker is OPEN; after that 10 of 10 callers permitted (adaptive)" in text


def test_show_counts_the_permits_and_the_budget_of_now(operator: Operator, watched: Watched) -> None:
    now = time.time()
    busy = Health(
        concurrency=Concurrency(limit=4, window=now),
        budget=Budget(spent=7.0, refilled=now + 1),
        permits={"a": (now + 60, 0), "b": (now + 60, 0), "of-a-dead-container": (now - 1, 0)},
    )
    watched.put("default", busy)
    (one,) = watched.shown()
    assert (one["permitted_callers"], one["limit_set"], one["worker_concurrency"], one["under_way"]) == (4, None, 10, 2)
    assert (one["allowed_retries"], one["budget_capacity"], one["failures"]) == (13, 20, 1)
    text = operator.run("retry", "breaker", "show").stdout
    assert "4 of 10 callers permitted (adaptive), 2 attempts under way" in text
    assert "13 of 20 retries may fail until successes and time return more" in text
    assert "1 of the last 18 calls failed; the breaker opens at 18" in text
    watched.put("default", replace(busy, budget=replace(busy.budget, refilled=now - 61)))
    (one,) = watched.shown()
    assert one["allowed_retries"] == 20


def test_show_states_what_the_policy_disables(operator: Operator, watched: Watched) -> None:
    parts = ("breaker", "concurrency", "budget")
    watched.policy = json.dumps({"downstream": {part: {"enabled": False} for part in parts}})
    (one,) = watched.shown()
    assert (one["breaker_enabled"], one["permitted_callers"], one["under_way"]) == (False, None, None)
    assert (one["budget_capacity"], one["allowed_retries"]) == (None, None)
    text = operator.run("retry", "breaker", "show").stdout
    assert "the policy disables the breaker\n" in text
    assert "no concurrency limit\n" in text
    watched.failing()
    text = operator.run("retry", "breaker", "show").stdout
    assert "the policy disables the breaker: the next message closes it" in text
    assert "the breaker opens at" not in text
    watched.put("default", rules.force_open(Health(), time.time(), "x"))
    assert "the policy disables the breaker\n" in operator.run("retry", "breaker", "show").stdout


def test_show_names_a_malformed_item_and_shows_the_others(operator: Operator, watched: Watched) -> None:
    malform_downstream(operator, "mail")
    ended = operator.run("retry", "breaker", "show", "--json")
    assert [one["downstream"] for one in ended.json["downstreams"]] == ["default"]
    assert "item 'mail' of the downstream table: health" in ended.json["malformed"][0]
    assert "malformed: item 'mail'" in operator.run("retry", "breaker", "show").stdout


def test_a_downstream_beyond_those_that_are_read_together_is_found_by_its_name(
    operator: Operator, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.put("mail", Health(Breaker(healthy=True), Concurrency(limit=4)))
    monkeypatch.setattr(DownstreamTable, "read_all", lambda _self: {"": NotRead("the others are not read")})
    assert [one["limit"] for one in watched.shown("mail")] == [4]
    assert operator.run("retry", "breaker", "show", "mial").exit_code == 4
    assert operator.run("retry", "breaker", "show", "--json").json["malformed"] == ["the others are not read"]


@pytest.mark.parametrize("value", [None, '{"downstream": 1}'])
def test_an_unusable_policy_is_named_and_the_built_in_one_used(
    operator: Operator, watched: Watched, value: str | None
) -> None:
    watched.policy = value
    ended = operator.run("retry", "breaker", "show", "--json")
    assert ended.json["downstreams"][0]["failure_threshold"] == 18
    expected = "the retry policy is invalid" if value else "the parameter of the retry policy does not exist"
    assert f"Warning: {expected}" in ended.stderr


# open and close ----------------------------------------------------------------------------------------------------


def test_open_holds_messages_back_until_close(operator: Operator, watched: Watched) -> None:
    ended = operator.run("retry", "breaker", "open", "--why", "maintenance", "--yes")
    assert ended.exit_code == 0
    assert "Messages are held back and spend no attempt" in ended.stdout
    assert "1 d, is dead-lettered with code TooOld" in ended.stdout
    health = watched.table.read("default")
    _, refused = rules.ask(health, SETTINGS, Permit("p", 0), time.time() + 86400)
    assert (health.breaker.forced, getattr(refused, "reason", None)) == (True, "breaker")
    assert health.breaker.changes[-1].why == "maintenance"
    (audited,) = operator.audited()
    assert (audited["action"], audited["downstream"], audited["state"]) == ("retry breaker open", "default", "CLOSED")
    assert audited["why"] == "maintenance"
    (one,) = watched.shown()
    assert audited["by"].endswith(f":{one['by']}")
    assert one["next_probe_at"] is None
    text = operator.run("retry", "breaker", "show").stdout
    assert "it stays open until: slotkeeper retry breaker close default" in text

    ended = operator.run("retry", "breaker", "close", "--why", "done", "--yes")
    assert ended.exit_code == 0
    assert "1 of 10 callers permitted (adaptive)" in ended.stdout
    assert "0 of the last 18 calls failed; the breaker opens at 18" in ended.stdout
    assert "return within about 1 min 10 s" in ended.stdout
    health = watched.table.read("default")
    assert (health.breaker.state, health.breaker.forced, health.callers(SETTINGS)) == (State.CLOSED, False, 1)
    assert [change["why"] for change in watched.shown()[0]["changes"]] == ["maintenance", "done"]
    assert [line["action"] for line in operator.audited()] == ["retry breaker open", "retry breaker close"]


def test_close_of_a_closed_breaker_changes_nothing(operator: Operator, watched: Watched) -> None:
    """It would set the concurrency limit to one caller."""
    before = watched.put("default", Health(Breaker(healthy=True), Concurrency(limit=8, window=time.time())))
    ended = operator.run("retry", "breaker", "close", "--why", "x", "--json")
    assert (ended.exit_code, ended.json["changed"]) == (0, False)
    assert (watched.table.read("default"), operator.audited()) == (before, [])


def test_close_does_not_change_a_breaker_that_closes_meanwhile(
    operator: Operator, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.failing()
    closed = Health(Breaker(healthy=True), Concurrency(limit=8))
    real = DownstreamTable.change

    def late(self: DownstreamTable, name: str, decide: Any) -> Any:
        monkeypatch.setattr(DownstreamTable, "change", real)
        watched.put("default", closed)
        return real(self, name, decide)

    monkeypatch.setattr(DownstreamTable, "change", late)
    ended = operator.run("retry", "breaker", "close", "--why", "x", "--yes")
    assert "closed already" in ended.stdout
    assert watched.table.read("default") == closed


@pytest.mark.parametrize("change", [("breaker", "open", "mial", "--why", "x"), ("limit", "2", "--downstream", "mial")])
def test_a_change_of_a_downstream_that_was_never_called_is_confirmed(
    operator: Operator, watched: Watched, change: tuple[str, ...]
) -> None:
    reason = operator.asks("retry", *change)
    assert "No downstream 'mial' has been called" in reason
    assert "The known downstreams are: default." in reason
    assert operator.run("retry", *change, "--yes").exit_code == 0
    health = watched.table.read("mial")
    assert health.breaker.forced or health.concurrency.limit_set == 2


@pytest.mark.parametrize("arguments", [["breaker", "open", "--why", "x"], ["limit", "2"]])
def test_a_malformed_item_is_not_changed(operator: Operator, watched: Watched, arguments: list[str]) -> None:
    malform_downstream(operator, "default")
    ended = operator.run("retry", *arguments, "--yes")
    assert (ended.exit_code, operator.audited()) == (1, [])
    assert "item 'default' of the downstream table: health" in ended.stderr


# limit -------------------------------------------------------------------------------------------------------------


def test_limit_sets_the_callers_until_auto(operator: Operator, watched: Watched) -> None:
    watched.put("default", Health(Breaker(healthy=True), Concurrency(limit=7)))
    ended = operator.run("retry", "limit", "3")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "3 callers permitted (set by an operator)" in ended.stdout
    assert watched.shown()[0]["permitted_callers"] == 3
    ended = operator.run("retry", "limit", "auto", "--json")
    assert ended.json == {"downstream": "default", "limit_set": None, "limit": 7}
    assert watched.table.read("default") == Health(Breaker(healthy=True), Concurrency(limit=7))
    ended = operator.run("retry", "limit", "auto")  # as it is: not audited
    assert (ended.exit_code, "7 of 10 callers permitted (adaptive)" in ended.stdout) == (0, True)
    assert [(one["before"], one["after"]) for one in operator.audited()] == [(None, 3), (3, None)]


def test_a_limit_above_the_worker_concurrency_is_set_with_a_note(operator: Operator, watched: Watched) -> None:
    ended = operator.run("retry", "limit", "11")
    assert "Warning: the event source starts at most 10 attempts at the same time: WorkerConcurrency" in ended.stderr
    assert watched.table.read("default").concurrency.limit_set == 11


def test_close_starts_with_the_limit_of_an_operator(operator: Operator, watched: Watched) -> None:
    watched.put("default", rules.set_limit(rules.force_open(Health(), time.time(), "x"), 4))
    ended = operator.run("retry", "breaker", "close", "--why", "x", "--yes")
    assert "4 callers permitted (set by an operator)" in ended.stdout


# other commands ----------------------------------------------------------------------------------------------------


def test_a_stack_without_the_table_is_named_and_other_commands_work(operator: Operator, watched: Watched) -> None:
    del operator.outputs["DownstreamTableName"]
    assert "deployed from an older template" in operator.run("retry", "breaker", "show").stderr
    assert operator.run("status").exit_code == 0
    assert operator.run("retry", "list").exit_code == 0


def test_retry_list_states_that_messages_may_be_held_back(operator: Operator, watched: Watched) -> None:
    expected = "the breaker is OPEN since"
    assert expected not in operator.run("retry", "list").stdout
    watched.failing()
    assert f"Messages may be held back: downstream default: {expected}" in operator.run("retry", "list").stdout
    assert operator.run("retry", "list", "--json").json["open_breakers"][0]["downstream"] == "default"
    retry_work(operator, Message("r", {}), time.time(), time.time())
    assert operator.run("retry", "list", "--json").json["retries"][0]["downstream"] == "default"
