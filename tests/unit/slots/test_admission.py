"""Admission of single messages, with faults at the botocore boundary, and the wakes after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.admission import Admission, Admitted, DeadLettered, Deferred, Repeated, Waiting
from slotkeeper.slots.process import MAX_HIDE_SECONDS
from slotkeeper.slots.request import PRIORITIES, Delivery, Priority, Request, execution_name, message_group
from tests.support.boundary import (
    Calls,
    before_write,
    passed_values,
    refuse,
)
from tests.unit.conftest import MAX_RECEIVES, NOW, RETENTION, VISIBILITY, Account, delivery

REQUEST = {"process": "p", "request_id": "order-1"}
EXECUTION = execution_name("p", "order-1", 1)
ADMITTED = Request("p", {}, "order-1")


def test_f24_a_message_delivered_twenty_times_starts_one_workflow(account: Account) -> None:
    for receive in range(1, 21):
        account.starter.admit(delivery(REQUEST, receives=receive), NOW)
    assert account.executions() == [EXECUTION]
    assert account.item().slots_in_use == 1


@pytest.mark.parametrize(
    ("code", "retries"),
    [
        *((code, 0) for code in ("ThrottlingException", "InternalServerError", "ServiceUnavailable", "SomethingNew")),
        ("AccessDeniedException", 1),
    ],
)
def test_f1_an_ambiguous_error_keeps_slot_and_message(account: Account, code: str, retries: int) -> None:
    """A definite refusal is ambiguous too if the SDK repeated the call: the first one may have taken effect."""
    refuse(account.stepfunctions, "StartExecution", code, retry_attempts=retries)
    with pytest.raises(ClientError):
        account.starter.admit(delivery(REQUEST), NOW)
    assert account.item().holders.keys() == {EXECUTION}


@pytest.mark.parametrize("code", ["AccessDeniedException", "StateMachineDoesNotExist", "ExecutionLimitExceeded"])
def test_a_definite_refusal_of_the_stack_cancels_the_reservation_and_keeps_the_message(
    account: Account, code: str
) -> None:
    refuse(account.stepfunctions, "StartExecution", code)
    hidden = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    outcome = account.starter.admit(account.send(REQUEST), NOW + 7200)
    assert isinstance(outcome, Deferred)
    assert code in outcome.reason
    assert account.item().slots_in_use == 0
    assert hidden == [5]  # independent of its age: nothing wakes it when Step Functions starts again
    assert account.messages(account.dead_letter_url) == []


def test_s6_a_slot_reserved_between_release_and_end_is_freed_by_the_next_delivery(account: Account) -> None:
    """Until a workflow that released its slot has ended, its request can reserve a slot that no execution confirms."""
    account.starter.admit(delivery(REQUEST), NOW)
    account.slots.cancel("p", EXECUTION)  # as the workflow's release
    assert isinstance(account.starter.admit(delivery(REQUEST, receives=2), NOW), Admitted)
    assert account.item().slots_in_use == 1
    account.finish(EXECUTION)
    assert account.starter.admit(delivery(REQUEST, receives=3), NOW) == Repeated(EXECUTION, "p")
    assert account.item().slots_in_use == 0


def _waits(account: Account) -> None:
    account.fill()
    sent = account.send(REQUEST)
    account.starter.admit(sent, NOW)
    account.slots.cancel("p", "p-other")
    account.starter.admit(replace(sent, receives=2), NOW)  # only now SQS delivers the next message of its group


def _has_run(account: Account) -> None:
    account.starter.admit(delivery(REQUEST), NOW)
    account.slots.cancel("p", EXECUTION)
    account.finish(EXECUTION)


@pytest.mark.parametrize(
    ("first", "outcome", "holders"),
    [
        (_waits, Admitted(ADMITTED), {EXECUTION}),
        (lambda account: account.starter.admit(delivery(REQUEST), NOW), Admitted(ADMITTED), {EXECUTION}),
        (_has_run, Repeated(EXECUTION, "p"), set[str]()),
        (lambda account: account.starter.admit(delivery('{"proces": "p"}'), NOW), Admitted(ADMITTED), {EXECUTION}),
    ],
    ids=["waits", "runs", "has run", "is dead-lettered"],
)
def test_a_request_that_is_sent_again_runs_once_after_each_fate_of_its_first_message(
    account: Account, first: Callable[[Account], None], outcome: Admission, holders: set[str]
) -> None:
    first(account)
    assert account.starter.admit(delivery(REQUEST, message_id="message-2", sequence="2"), NOW) == outcome
    assert (account.executions(), account.item().holders.keys()) == ([EXECUTION], holders)


OTHERS = REQUEST | {"arguments": {"--day": "another"}}


@pytest.mark.parametrize(
    ("state", "runs", "holders"),
    [
        # An earlier reservation may belong to the open execution, which has not confirmed it yet.
        ("open", "runs", {EXECUTION}),
        # It has released its slot and has not ended yet, so its name can reserve another.
        ("released", "runs", set[str]()),
        ("closed", "ran", set[str]()),
    ],
    ids=["open", "released", "closed"],
)
def test_a_reused_request_id_is_dead_lettered_and_leaves_only_the_reservation_of_an_open_execution(
    account: Account, state: str, runs: str, holders: set[str]
) -> None:
    account.starter.admit(delivery(REQUEST), NOW)
    if state == "released":
        account.slots.cancel("p", EXECUTION)  # as the workflow's release
    elif state == "closed":
        account.finish(EXECUTION)
    outcome = account.starter.admit(delivery(OTHERS, message_id="message-2", sequence="2"), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "RequestIdReused"
    assert f"'order-1' is already used by another request, which {runs} with other arguments" in outcome.reason
    assert account.item().holders.keys() == holders
    assert len(account.messages(account.dead_letter_url)) == 1


@pytest.mark.parametrize("weight", [1, 3, None])
def test_a_reused_request_id_of_another_weight_does_not_start_in_the_reservation(
    account: Account, weight: int | None
) -> None:
    """The starter of the first request died before it started the workflow. The first one's redelivery starts it."""
    account.processes.set_limit("p", 3)
    account.reserve(EXECUTION, 2)
    other = REQUEST | {"priority": "high"} | ({"weight": weight} if weight else {})
    outcome = account.starter.admit(delivery(other, "p#high", message_id="message-2"), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "RequestIdReused"
    assert "'order-1' is already used by another request, which holds a slot of weight 2" in outcome.reason
    assert account.item().holders.keys() == {EXECUTION}
    first = account.starter.admit(delivery(REQUEST | {"weight": 2}, receives=2), NOW)
    assert isinstance(first, Admitted)


def test_a_message_is_retried_while_its_execution_cannot_be_described(account: Account) -> None:
    """DescribeExecution is eventually consistent: it may not find the execution for which StartExecution refuses."""
    account.starter.admit(delivery(REQUEST), NOW)
    refuse(account.stepfunctions, "DescribeExecution", "ExecutionDoesNotExist")
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        account.starter.admit(delivery(OTHERS, message_id="message-2", sequence="2"), NOW)
    assert account.item().holders.keys() == {EXECUTION}


def test_a_closed_execution_that_is_still_described_as_running_has_run(account: Account) -> None:
    """StartExecution succeeds for an open execution with the same input."""
    account.starter.admit(delivery(REQUEST), NOW)
    refuse(account.stepfunctions, "StartExecution", "ExecutionAlreadyExists")
    assert account.starter.admit(delivery(REQUEST, receives=2), NOW) == Repeated(EXECUTION, "p")
    assert account.item().slots_in_use == 0


@pytest.mark.parametrize(("is_open", "outcome"), [(True, Admitted), (False, Repeated)])
def test_the_same_request_in_another_spelling_is_the_same_request(
    account: Account, is_open: bool, outcome: type
) -> None:
    """During a deployment another version of the code may have written the input differently."""
    account.stepfunctions.start_execution(
        stateMachineArn=account.workflow_arn,
        name=EXECUTION,
        input=json.dumps(REQUEST | {"attempt": 1, "arguments": {}}, indent=1),
    )
    if not is_open:
        account.finish(EXECUTION)
    assert isinstance(account.starter.admit(delivery(REQUEST), NOW), outcome)
    assert account.item().slots_in_use == int(is_open)


def test_a_cancelled_reservation_wakes_the_waiting_request(account: Account) -> None:
    account.lose_wake("low")
    refuse(account.stepfunctions, "StartExecution", "AccessDeniedException")
    account.starter.admit(delivery(REQUEST), NOW)
    assert len(account.messages(account.queue_url)) == 1


def test_a_refused_message_is_registered_hidden_and_checked_again(account: Account) -> None:
    account.fill()
    refused = account.send(REQUEST)
    calls = Calls(account.dynamodb, account.sqs)
    hidden = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert account.starter.admit(refused, NOW) == Waiting(ADMITTED, "full", 0.0)
    # reserve, register, hide, check
    assert calls.made == ["UpdateItem", "UpdateItem", "ChangeMessageVisibility", "GetItem"]
    assert hidden[0] > VISIBILITY
    assert account.messages(account.queue_url) == []
    registered = account.item().waiting["normal"]
    assert (registered.execution, registered.request_id) == (EXECUTION, "order-1")


def _replace(account: Account) -> None:
    account.processes.remove("p")
    account.processes.create("p", 0, "job")


NO_PROCESS = (
    "process 'p' does not exist in the slot table. Add it with slotkeeper process add, then redrive this message"
)
BEFORE_THE_HIDE: dict[str, tuple[Callable[[Account], object], object]] = {
    "a slot is freed": (lambda account: account.processes.resume("p"), Admitted(ADMITTED)),
    "cancelled": (
        lambda account: account.processes.cancellations.add("p", EXECUTION, NOW),
        DeadLettered("Cancelled", "cancelled at 2027-01-15T08:00:00Z"),
    ),
    "process removed": (
        lambda account: account.processes.remove("p"),
        DeadLettered("UnknownProcess", NO_PROCESS),
    ),
    "process replaced": (_replace, Waiting(ADMITTED, "blocked", 0.0)),
    # A release has woken the message, and another one has found its handle outdated.
    "registration cleared": (
        lambda account: account.slots.clear("p", account.item().waiting["normal"], NOW),
        Waiting(ADMITTED, "contended", 0.0),
    ),
}


@pytest.mark.parametrize("what", BEFORE_THE_HIDE)
def test_s6_what_happens_before_the_hide_is_found_by_the_check_after_it(account: Account, what: str) -> None:
    """Between the registration and the hide. SQS accepts the handle in any case, and no later wake would come."""
    act, outcome = BEFORE_THE_HIDE[what]
    account.processes.pause("p")
    refused, acts = account.send(REQUEST), [act]
    account.sqs.meta.events.register(
        "before-call.sqs.ChangeMessageVisibility", lambda **_: (acts.pop()(account) if acts else None) and None
    )
    assert account.starter.admit(refused, NOW) == outcome
    assert bool(account.messages(account.queue_url)) == ("cleared" in what)


@pytest.mark.parametrize("what", ["a slot is freed", "process removed"])
def test_what_happens_before_the_registration_is_found_immediately(account: Account, what: str) -> None:
    act, outcome = BEFORE_THE_HIDE[what]
    account.processes.pause("p")
    refused, calls = account.send(REQUEST), Calls(account.sqs)
    before_write(account.dynamodb, lambda _: None, lambda _: act(account))  # reserve, register
    assert account.starter.admit(refused, NOW) == outcome
    assert "ChangeMessageVisibility" not in calls.made


@pytest.mark.parametrize("is_full", [False, True])
def test_a_request_of_a_process_for_leases_is_dead_lettered(account: Account, is_full: bool) -> None:
    account.write("target", {"S": "none"})
    if is_full:
        account.fill()
    outcome = account.starter.admit(account.send(REQUEST), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "LeasesOnly"
    assert outcome.reason.startswith("process 'p' is for leases only: it has no target, and runs no request")
    assert EXECUTION not in account.item().holders
    assert account.item().waiting == {}


@pytest.mark.parametrize(("receives", "seconds"), [(1, 5), (2, 10), (6, 160), (7, 180), (900, 180)])
def test_s6_after_an_error_a_message_returns_within_seconds_at_first(
    account: Account, receives: int, seconds: int
) -> None:
    """Nothing wakes it, since it is not registered, and its whole group waits behind it."""
    sent = replace(account.send(REQUEST), receives=receives)
    hidden = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert account.starter.defer(sent, NOW, RuntimeError("why")).reason.startswith("RuntimeError: why")
    assert hidden == [seconds]


@pytest.mark.parametrize("error", ["RuntimeError: why", "the workflow cannot be started: AccessDenied"])
def test_a_lasting_error_dead_letters_a_message_before_sqs_does_without_a_reason(account: Account, error: str) -> None:
    last = delivery(REQUEST, receives=MAX_RECEIVES - 1)
    if error.startswith("RuntimeError"):
        outcome: Any = account.starter.defer(last, NOW, RuntimeError("why"))
    else:
        refuse(account.stepfunctions, "StartExecution", "AccessDeniedException")
        outcome = account.starter.admit(last, NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.request is not None
    (message,) = account.messages(account.dead_letter_url)
    reason = message["MessageAttributes"]["reason"]["StringValue"]
    assert reason.startswith(f"received 999 times, nearly the queue's maximum of 1000: {error}")


@pytest.mark.parametrize(("left", "ending"), [(3599, DeadLettered), (3601, Deferred)])
def test_after_an_error_a_message_expires_two_of_the_longest_hides_before_its_retention(
    account: Account, left: float, ending: type[object]
) -> None:
    sent = replace(account.send(REQUEST), sent_at=NOW - RETENTION + left)
    assert isinstance(account.starter.defer(sent, NOW, RuntimeError("why")), ending)


def test_a_malformed_message_is_deferred_too(account: Account) -> None:
    assert isinstance(account.starter.defer(account.send("{"), NOW, RuntimeError("why")), Deferred)


@pytest.mark.parametrize("left", [600, 120_000 * 0.5 + MAX_HIDE_SECONDS], ids=["ten minutes", "a burst"])
def test_a_message_at_the_end_of_its_retention_is_dead_lettered(account: Account, left: float) -> None:
    """In time for a burst of the queue's maximum: each message takes half a second, the head is half an hour late."""
    account.fill()
    outcome = account.starter.admit(delivery(REQUEST, sent_at=NOW - RETENTION + left), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "Expired"
    assert "full" in outcome.reason


@pytest.mark.parametrize(("left", "is_full", "outcome"), [(86_401, True, Waiting), (600, False, Admitted)])
def test_an_old_message_waits_for_thirteen_days_and_later_takes_a_free_slot(
    account: Account, left: float, is_full: bool, outcome: type[object]
) -> None:
    if is_full:
        account.fill()
    old = replace(account.send(REQUEST), sent_at=NOW - RETENTION + left)
    assert isinstance(account.starter.admit(old, NOW), outcome)


def test_f22_a_bad_message_is_dead_lettered_immediately_and_changes_nothing_else(account: Account) -> None:
    before = account.raw_item()
    outcome = account.starter.admit(delivery('{"process": "p", "priority": 1}'), NOW)
    assert isinstance(outcome, DeadLettered)
    (message,) = account.messages(account.dead_letter_url)
    assert "priority" in message["MessageAttributes"]["reason"]["StringValue"]
    assert account.raw_item() == before


def test_f19_a_message_of_an_unknown_process_is_dead_lettered(account: Account) -> None:
    outcome = account.starter.admit(delivery({"process": "unknown"}, group="unknown"), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "UnknownProcess"


def test_f7_a_malformed_process_keeps_its_messages(account: Account) -> None:
    item = account.raw_item() | {"slot_limit": {"S": "10"}}
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", Item=item)
    outcome = account.starter.admit(account.send(REQUEST), NOW)
    assert isinstance(outcome, Deferred)
    assert "slot_limit" in outcome.reason


def test_a_redriven_message_that_is_refused_again_has_its_own_deduplication_id(account: Account) -> None:
    """SQS drops a message with a deduplication id of the last five minutes. A redriven message has a new message id."""
    ids = passed_values(account.sqs, "SendMessage", "MessageDeduplicationId")
    for message_id in ("first", "moved-back"):
        body = {"process": "unknown", "request_id": "order-1"}
        account.starter.admit(delivery(body, group="unknown", message_id=message_id), NOW)
    assert ids == ["first", "moved-back"]


# The calls and wakes after an admission or a dead-letter message


def _delivery(priority: Priority = "normal", receives: int = 1, **more: Any) -> Delivery:
    return delivery(REQUEST | {"priority": priority} | more, message_group("p", priority), receives=receives)


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
    assert isinstance(low_waits.starter.admit(replace(low_waits.send(REQUEST), sequence="1"), NOW), Waiting)
    low_waits.processes.set_limit("p", 2)
    cause(low_waits)
    outcome = low_waits.starter.admit(_delivery(receives=2), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == code
    assert EXECUTION not in low_waits.item().holders
    assert low_waits.item().waiting.keys() == {"low"}
    assert low_waits.item().tombstones == {"normal": ("1".zfill(40), 2)}
    assert _visible(low_waits) == ["p-low"]


def test_the_dead_letter_message_is_sent_before_the_wait_ends_and_the_next_is_woken(low_waits: Account) -> None:
    """Sending it must not depend on DynamoDB, and a failure after it must leave the message on the queue."""
    _cancel(low_waits)
    made = Calls(low_waits.dynamodb, low_waits.sqs).made
    low_waits.starter.admit(_delivery(receives=2), NOW)
    assert made == ["UpdateItem", "SendMessage", "UpdateItem", "GetItem", "ChangeMessageVisibility"]


# A registration that was cleared
