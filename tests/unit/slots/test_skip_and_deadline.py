"""Requests that are skipped if they cannot start, and requests that start before a time or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from slotkeeper.slots.admission import Admitted, DeadLettered, Deferred, Repeated, Skipped, Waiting
from slotkeeper.slots.callers import AnswerOutcome
from slotkeeper.slots.request import Delivery, InvalidRequest, execution_name, parse_request
from tests.support.boundary import Calls, Killed, kill_after, kill_before, lose_answer, passed_values, refuse
from tests.unit.conftest import NOW, VISIBILITY, Account, delivery

NAME = execution_name("p", "nightly", 1)
SKIP = {"process": "p", "request_id": "nightly", "when_busy": "skip"}
DEADLINE = NOW + 3600  # 2027-01-15T09:00:00Z
LIMITED = {"process": "p", "request_id": "nightly", "start_before": "2027-01-15T10:00:00+01:00"}
LATE_REASON = "start_before was 2027-01-15T10:00:00+01:00, and the request had not started by then"


def again(delivered: Delivery, receives: int = 2) -> Delivery:
    return replace(delivered, receives=receives)


def take_notes(account: Account) -> list[tuple[str, str]]:
    """The answers to callers from now on."""
    answers: list[tuple[str, str]] = []

    def answer(_: str, code: str, reason: str) -> AnswerOutcome:
        answers.append((code, reason))
        return AnswerOutcome.GIVEN

    account.starter = replace(account.starter, answer=answer)
    return answers


# Skip --------------------------------------------------------------------------------------------------------------


def _full(account: Account) -> None:
    account.fill()


def _paused(account: Account) -> None:
    account.write("paused", {"BOOL": True})


def _blocked(account: Account) -> None:
    account.write("slot_limit", {"N": "0"})


def _overtaken(account: Account) -> None:
    account.fill()
    account.register(priority="high")
    account.slots.cancel("p", "p-other")


@pytest.mark.parametrize(
    ("busy", "cause"),
    [
        (_full, "the process is full"),
        (_paused, "the process is paused"),
        (_blocked, "its weight is above the process's limit"),
        (_overtaken, "requests of a higher priority come first"),
    ],
)
def test_a_request_that_skips_ends_when_it_is_refused_and_is_never_registered(
    account: Account, busy: Callable[[Account], None], cause: str
) -> None:
    busy(account)
    before = account.item().waiting
    outcome = account.starter.admit(account.send(SKIP), NOW)
    assert isinstance(outcome, Skipped)
    assert outcome.reason == f"it could not start when it was received, since {cause}"
    assert account.item().waiting == before
    assert (account.executions(), account.messages(account.dead_letter_url)) == ([], [])
    note = account.skipped.note_of(NAME)
    assert note is not None
    assert (note.request_id, note.reason, note.since) == ("nightly", outcome.reason, NOW)
    assert list(account.skipped.all_notes()) == [note]


@pytest.mark.parametrize("request_", [SKIP, LIMITED], ids=["skip", "deadline"])
def test_a_request_that_starts_makes_the_calls_of_any_request(account: Account, request_: dict[str, str]) -> None:
    calls = Calls(account.dynamodb, account.sqs, account.stepfunctions)
    assert isinstance(account.starter.admit(delivery(request_), DEADLINE - 0.001), Admitted)
    assert calls.made == ["UpdateItem", "StartExecution"]


def test_a_request_that_skips_is_not_skipped_because_of_an_error(account: Account) -> None:
    refuse(account.stepfunctions, "StartExecution", "AccessDeniedException")
    assert isinstance(account.starter.admit(account.send(SKIP), NOW), Deferred)


@pytest.mark.parametrize("fault", [kill_after, lose_answer], ids=["dies", "lost answer"])
def test_a_skipped_request_that_is_delivered_again_is_skipped_again_although_a_slot_is_free(
    account: Account, fault: Callable[[Any, str], None]
) -> None:
    account.fill()
    sent = delivery(SKIP)
    fault(account.dynamodb, "PutItem")
    with pytest.raises((Killed, ReadTimeoutError)):
        account.starter.admit(sent, NOW)
    account.slots.cancel("p", "p-other")
    assert isinstance(account.starter.admit(again(sent), NOW), Skipped)
    assert account.item().holders == {}


def test_a_message_that_repeats_a_skipped_request_is_decided_anew(account: Account) -> None:
    account.fill()
    account.starter.admit(delivery(SKIP), NOW)
    account.slots.cancel("p", "p-other")
    second = delivery(SKIP, message_id="message-2", sequence="2", receives=2)
    assert isinstance(account.starter.admit(second, NOW), Admitted)


def _runs(account: Account) -> None:
    account.slots.cancel("p", NAME)  # as the workflow's release


def _has_ended(account: Account) -> None:
    account.finish(NAME)
    account.slots.cancel("p", NAME)


@pytest.mark.parametrize(("state", "expected"), [(_runs, Admitted), (_has_ended, Repeated)])
@pytest.mark.parametrize("request_", [SKIP, LIMITED], ids=["skip", "deadline"])
def test_what_has_started_is_neither_skipped_nor_too_late(
    account: Account, state: Callable[[Account], None], expected: type, request_: dict[str, str]
) -> None:
    account.starter.admit(delivery(request_), NOW)
    state(account)
    account.fill()
    outcome = account.starter.admit(delivery(request_, receives=2), DEADLINE)
    assert isinstance(outcome, expected)
    assert account.skipped.note_of(NAME) is None
    assert account.messages(account.dead_letter_url) == []


def test_another_request_with_the_id_of_a_skipped_one_is_not_taken_for_it(account: Account) -> None:
    account.starter.admit(delivery(SKIP), NOW)
    other = delivery(SKIP | {"arguments": {"--day": "another"}}, message_id="message-2", sequence="2")
    account.slots.cancel("p", NAME)
    account.fill()
    outcome = account.starter.admit(other, NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.code == "RequestIdReused"


# Deadline ----------------------------------------------------------------------------------------------------------


def test_a_request_with_a_deadline_is_hidden_no_longer_than_until_then(account: Account) -> None:
    account.fill()
    hidden = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    sent = account.send(LIMITED)
    assert isinstance(account.starter.admit(sent, NOW), Waiting)
    assert isinstance(account.starter.admit(again(sent), DEADLINE - 60.5), Waiting)
    assert isinstance(account.starter.admit(again(sent, 3), DEADLINE - 0.5), Waiting)
    assert hidden == [225, 61, 1]
    assert account.item().waiting["normal"].hidden_until == DEADLINE + 1


def test_after_an_error_a_request_with_a_deadline_is_hidden_no_longer_than_until_then(account: Account) -> None:
    hidden = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    sent = replace(account.send(LIMITED), receives=10)
    account.starter.defer(sent, DEADLINE - 60, ValueError())
    account.starter.defer(sent, NOW, ValueError())
    account.starter.defer(sent, DEADLINE, ValueError())
    assert hidden == [60, VISIBILITY, VISIBILITY]


def test_a_request_that_waits_at_its_deadline_is_dead_lettered_and_keeps_no_other_out(account: Account) -> None:
    account.fill()
    answers = take_notes(account)
    sent = account.send(LIMITED | {"task_token": "token"})
    assert isinstance(account.starter.admit(sent, NOW), Waiting)
    low = account.wait_in_queue("p-low", "low")
    account.slots.cancel("p", "p-other")
    woken = passed_values(account.sqs, "ChangeMessageVisibility", "ReceiptHandle")
    outcome = account.starter.admit(again(sent), DEADLINE)
    assert outcome == DeadLettered("TooLate", LATE_REASON)
    assert answers == [("TooLate", LATE_REASON)]
    (message,) = account.messages(account.dead_letter_url)
    assert message["MessageAttributes"]["code"]["StringValue"] == "TooLate"
    assert (account.executions(), account.item().waiting.keys(), woken) == ([], {"low"}, [low.receipt_handle])


@pytest.mark.parametrize(
    "fault",
    [
        lambda account: lose_answer(account.dynamodb, "UpdateItem"),
        lambda account: kill_before(account.stepfunctions, "StartExecution"),
    ],
    ids=["reserve", "start"],
)
def test_a_reservation_whose_workflow_was_not_started_by_the_deadline_is_freed(
    account: Account, fault: Callable[[Account], None]
) -> None:
    fault(account)
    with pytest.raises((Killed, ReadTimeoutError)):
        account.starter.admit(delivery(LIMITED), DEADLINE - 1)
    assert account.item().holders.keys() == {NAME}
    assert account.starter.admit(delivery(LIMITED, receives=2), DEADLINE) == DeadLettered("TooLate", LATE_REASON)
    assert (account.executions(), account.item().slots_in_use) == ([], 0)


def test_a_confirmed_slot_wins_although_its_execution_is_not_described_yet(account: Account) -> None:
    account.starter.admit(delivery(LIMITED), DEADLINE - 1)
    account.confirm(NAME)
    refuse(account.stepfunctions, "DescribeExecution", "ExecutionDoesNotExist")
    assert isinstance(account.starter.admit(delivery(LIMITED, receives=2), DEADLINE), Admitted)
    assert account.item().holders.keys() == {NAME}


# Bad input ---------------------------------------------------------------------------------------------------------

NO_ZONE = "body.start_before must be a time with its zone, such as 2026-11-28T08:00:00+01:00, got "


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"start_before": "2026-11-28T08:00:00"}, f"{NO_ZONE}'2026-11-28T08:00:00'"),
        ({"start_before": "08:00"}, f"{NO_ZONE}'08:00'"),
        ({"start_before": "2026-11-28T08:00:00Z\n"}, f"{NO_ZONE}'2026-11-28T08:00:00Z\\n'"),
        ({"start_before": 1_800_000_000}, f"{NO_ZONE}'1800000000'"),
        ({"start_before": None}, f"{NO_ZONE}'None'"),
        ({"start_before": "2026-13-28T08:00:00Z"}, "start_before is '2026-13-28T08:00:00Z', which is no time: "),
        ({"start_before": "9999-12-31T23:59:59-23:59"}, f"{NO_ZONE}'9999-12-31T23:59:59-23:59'"),
        ({"when_busy": "queue"}, "body.when_busy must be one of ['wait', 'skip']"),
        ({"when_busy": True}, "body.when_busy must be one of ['wait', 'skip']"),
    ],
)
def test_an_invalid_field_is_refused_with_what_was_expected(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(delivery({"process": "p"} | fields))
    assert str(refused.value).startswith(reason)


def test_a_request_without_the_fields_is_encoded_as_before_and_one_with_them_keeps_them() -> None:
    plain = parse_request(delivery({"process": "p", "request_id": "1", "when_busy": "wait"}))
    assert plain.to_json() == '{"arguments":{},"attempt":1,"process":"p","request_id":"1"}'
    both = parse_request(delivery(SKIP | LIMITED))
    assert parse_request(delivery(both.to_json())) == both
