"""Admission of requests with priorities and weights, and the wakes after an admission or a dead-letter message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.admission import Admitted, DeadLettered, Repeated, Waiting
from slotkeeper.slots.request import PRIORITIES, Delivery, Priority, Request, execution_name, message_group
from tests.support.boundary import Calls, refuse
from tests.unit.conftest import NOW, RETENTION, Account, delivery

EXECUTION = execution_name("p", "order-1", 1)


def _body(priority: Priority = "normal", **more: Any) -> dict[str, Any]:
    return {"process": "p", "request_id": "order-1", "priority": priority} | more


def _delivery(priority: Priority = "normal", receives: int = 1, **more: Any) -> Delivery:
    return delivery(_body(priority, **more), message_group("p", priority), receives=receives)


@pytest.mark.parametrize(
    ("weight", "calls"),
    [
        ({}, ["UpdateItem", "StartExecution"]),
        ({"weight": 1}, ["UpdateItem", "StartExecution"]),
        ({"weight": 2}, ["GetItem", "UpdateItem", "StartExecution"]),
    ],
)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_an_admitted_message_costs_two_calls_or_three_if_it_is_heavy(
    account: Account, priority: Priority, weight: dict[str, int], calls: list[str]
) -> None:
    account.processes.set_limit("p", 2)
    made = Calls(account.dynamodb, account.sqs, account.stepfunctions).made
    outcome = account.starter.admit(_delivery(priority, **weight), NOW)
    assert outcome == Admitted(Request("p", {}, "order-1", 1, priority, weight.get("weight")))
    assert made == calls


@pytest.fixture
def low_waits(account: Account) -> Account:
    """One of two slots is free. A request of low priority is hidden in the queue. No turn delays its wake."""
    account.write("turn_seconds", {"N": "0"})
    account.fill()
    account.wait_in_queue("p-low", "low")
    account.processes.set_limit("p", 2)
    return account


def _visible(account: Account) -> list[str]:
    return [each["Body"] for each in account.messages(account.queue_url)]


# Rule 4: a grant after the message may have waited


def test_a_request_that_has_waited_wakes_the_next_one_when_it_starts(low_waits: Account) -> None:
    """1. Requests of high and low priority wait. Two slots become free, and two wakes find the same high one.
    2. It starts, and no further wake comes for the low one, although the other slot is free.
    """
    low_waits.processes.set_limit("p", 3)
    assert isinstance(low_waits.starter.admit(_delivery("high", receives=2), NOW), Admitted)
    assert _visible(low_waits) == ["p-low"]


def test_a_request_that_registers_and_starts_at_one_receive_wakes_the_next_one(low_waits: Account) -> None:
    """Two slots become free while the starter hides the message, and both wakes find this request."""
    hide = low_waits.queue.hide

    def hide_slowly(delivery: Delivery, seconds: int) -> None:
        hide(delivery, seconds)
        low_waits.processes.set_limit("p", 3)

    low_waits.processes.set_limit("p", 1)
    low_waits.queue.hide = hide_slowly  # type: ignore[method-assign]
    assert isinstance(low_waits.starter.admit(_delivery("high"), NOW), Admitted)
    assert _visible(low_waits) == ["p-low"]


def test_a_request_whose_slot_another_message_has_reserved_ends_its_own_wait(account: Account) -> None:
    """Two messages of different priority have the same id. The grant of one leaves the registration of the other."""
    account.fill()
    account.register(EXECUTION)
    account.processes.set_limit("p", 2)
    account.reserve(EXECUTION, priority="high")
    assert isinstance(account.starter.admit(_delivery(receives=2), NOW), Admitted)
    assert account.item().waiting == {}


def test_a_request_that_has_not_waited_wakes_none(low_waits: Account) -> None:
    low_waits.processes.set_limit("p", 3)
    assert isinstance(low_waits.starter.admit(_delivery("high"), NOW), Admitted)
    assert _visible(low_waits) == []


def test_a_starter_that_died_after_the_reserve_leaves_the_wake_to_the_redelivery(low_waits: Account) -> None:
    low_waits.processes.set_limit("p", 3)
    low_waits.reserve(EXECUTION, priority="high", receives=2)
    assert isinstance(low_waits.starter.admit(_delivery("high", receives=3), NOW), Admitted)
    assert _visible(low_waits) == ["p-low"]


def test_a_request_that_ran_before_wakes_the_next_one_when_it_returns_its_slot(low_waits: Account) -> None:
    low_waits.starter.workflow.start(Request("p", {}, "order-1"))
    low_waits.finish(EXECUTION)
    assert isinstance(low_waits.starter.admit(_delivery(), NOW), Repeated)
    assert _visible(low_waits) == ["p-low"]


# Rule 3: a dead-lettered head


def _cancel(account: Account) -> None:
    account.processes.cancellations.add("p", EXECUTION, NOW)


def _reject(account: Account) -> None:
    account.processes.set_limit("p", 3)
    refuse(account.stepfunctions, "StartExecution", "InvalidExecutionInput")


def _use_twice(account: Account) -> None:
    account.processes.set_limit("p", 3)
    account.stepfunctions.start_execution(stateMachineArn=account.workflow_arn, name=EXECUTION, input="{}")


@pytest.mark.parametrize(
    ("cause", "code"), [(_cancel, "Cancelled"), (_reject, "InvalidExecution"), (_use_twice, "RequestIdReused")]
)
def test_a_dead_lettered_head_ends_its_wait_and_wakes_the_next_one(
    low_waits: Account, cause: Callable[[Account], None], code: str
) -> None:
    low_waits.processes.set_limit("p", 1)
    assert isinstance(low_waits.starter.admit(replace(low_waits.send(_body()), sequence="1"), NOW), Waiting)
    low_waits.processes.set_limit("p", 2)
    cause(low_waits)
    outcome = low_waits.starter.admit(_delivery(receives=2), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == code
    assert low_waits.item().waiting.keys() == {"low"}
    assert low_waits.item().tombstones == {"normal": ("1".zfill(40), 2)}
    assert _visible(low_waits) == ["p-low"]


def test_an_expired_head_ends_its_wait_and_wakes_the_next_one(account: Account) -> None:
    """It is heavier than what is free, and the next one is not."""
    account.fill()
    account.processes.set_limit("p", 2)
    assert isinstance(account.starter.admit(_delivery("high", weight=2), NOW), Waiting)
    account.wait_in_queue("p-low", "low")
    old = replace(_delivery("high", receives=2, weight=2), sent_at=NOW - RETENTION + 600)
    outcome = account.starter.admit(old, NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "Expired"
    assert _visible(account) == ["p-low"]


def test_the_dead_letter_message_is_sent_before_the_wait_ends_and_the_next_is_woken(low_waits: Account) -> None:
    """Sending it must not depend on DynamoDB, and a failure after it must leave the message on the queue."""
    _cancel(low_waits)
    made = Calls(low_waits.dynamodb, low_waits.sqs).made
    low_waits.starter.admit(_delivery(receives=2), NOW)
    assert made == ["UpdateItem", "SendMessage", "UpdateItem", "GetItem", "ChangeMessageVisibility"]


@pytest.mark.parametrize("body", ["{", {"process": "p", "weight": 0}])
def test_a_message_that_is_no_request_is_dead_lettered_without_dynamodb(account: Account, body: Any) -> None:
    made = Calls(account.dynamodb).made
    assert isinstance(account.starter.admit(delivery(body), NOW), DeadLettered)
    assert made == []


# A registration that was cleared


def test_a_message_whose_registration_was_cleared_before_the_hide_is_made_visible_again(account: Account) -> None:
    """1. The starter registers a message. A release wakes it, although the starter has not hidden it yet.
    2. Another release finds that the handle is outdated, because the message has been received again, and clears it.
    3. The starter hides the message by the outdated handle, which SQS still accepts. No wake would come for it.
    """
    account.fill()
    refused = account.send(_body())
    acts: list[Callable[[], Any]] = [lambda: account.slots.clear("p", account.item().waiting["normal"], NOW)]
    account.sqs.meta.events.register(
        "before-call.sqs.ChangeMessageVisibility", lambda **_: (acts.pop()() if acts else None) and None
    )
    outcome = account.starter.admit(refused, NOW)
    assert outcome == Waiting(Request("p", {}, "order-1"), "contended", 0.0)
    assert len(_visible(account)) == 1
    assert account.item().waiting == {}


# Blocked


def test_a_request_above_the_limit_waits_and_runs_when_the_limit_is_raised(account: Account) -> None:
    refused = account.send(_body("high", weight=2), message_group("p", "high"))
    assert isinstance(account.starter.admit(refused, NOW), Waiting)
    assert isinstance(account.starter.admit(_delivery("low", request_id="order-2"), NOW), Admitted)
    account.processes.set_limit("p", 3)
    assert isinstance(account.starter.admit(replace(refused, receives=2), NOW), Admitted)
    assert account.item().slots_in_use == 3


# Bad input


@pytest.mark.parametrize(
    ("body", "group", "reason"),
    [
        ({"weight": 0}, "p", "body.weight must be bigger than or equal to 1"),
        ({"weight": 100_001}, "p", "body.weight must be smaller than or equal to 100000"),
        ({"weight": "2"}, "p", "body.weight must be integer"),
        ({"priority": "urgent"}, "p", "body.priority must be one of ['high', 'normal', 'low']"),
        ({"priority": "high"}, "p", "MessageGroupId is 'p', but a request of process 'p' with priority 'high'"),
        ({}, "p#low", "MessageGroupId is 'p#low', but a request of process 'p' with priority 'normal' must have 'p'"),
    ],
)
def test_a_bad_weight_or_priority_is_dead_lettered_with_its_reason(
    account: Account, body: dict[str, Any], group: str, reason: str
) -> None:
    outcome = account.starter.admit(delivery({"process": "p"} | body, group), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "InvalidRequest"
    assert reason in outcome.reason
    (message,) = account.messages(account.dead_letter_url)
    assert reason in message["MessageAttributes"]["reason"]["StringValue"]
