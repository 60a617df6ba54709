"""Hiding, waking and dead-lettering messages of the queue."""

from __future__ import annotations

import pytest

from slotkeeper.slots.queues import hide_seconds
from tests.support.boundary import refuse
from tests.unit.conftest import RETENTION, VISIBILITY, Account, delivery


def test_f21_waiting_for_the_whole_retention_does_not_use_up_the_receives() -> None:
    waited, receives = 0.0, 0
    while waited < RETENTION:
        waited += hide_seconds(waited, VISIBILITY)
        receives += 1
    assert receives < 750  # of 1,000: the others are for wakes


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [(0, 225), (900, 225), (1000, 250), (4000, 1000), (7200, 1800), (1e6, 1800)],
    ids=["1.25 times the default", "the same", "a quarter", "a quarter later", "half an hour", "half an hour later"],
)
def test_a_message_is_hidden_for_a_quarter_of_the_time_it_has_waited(waited: float, seconds: int) -> None:
    """At least 1.25 times the queue's default, at most half an hour, as docs/correctness.md and docs/costs.md state."""
    assert hide_seconds(waited, default_visibility=180) == seconds


@pytest.mark.parametrize(
    "code",
    ["AWS.SimpleQueueService.MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"],
)
def test_a_spent_handle_is_no_error(account: Account, code: str) -> None:
    refuse(account.sqs, "ChangeMessageVisibility", code)
    assert account.queue.make_visible("spent") is False


def test_a_dead_letter_message_has_its_reason_and_the_unchanged_body(account: Account) -> None:
    account.queue.dead_letter(delivery("junk \u2603"), "InvalidRequest", "because\x00of a \x07 bell")
    (message,) = account.messages(account.dead_letter_url)
    assert message["Body"] == "junk \u2603"
    assert message["MessageAttributes"]["reason"]["StringValue"] == "because?of a ? bell"
    assert message["MessageAttributes"]["code"]["StringValue"] == "InvalidRequest"


def test_each_dead_letter_message_has_a_group_of_its_own(account: Account) -> None:
    """SQS returns at most ten messages of a group, and the operator command must find each."""
    for message_id in ("m-1", "m-2"):
        account.queue.dead_letter(delivery("{}", "p#high", message_id=message_id), "UnknownProcess", "why")
    messages = account.sqs.receive_message(
        QueueUrl=account.dead_letter_url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
    )["Messages"]
    assert [one["Attributes"]["MessageGroupId"] for one in messages] == ["m-1", "m-2"]
    assert {one["MessageAttributes"]["message_group"]["StringValue"] for one in messages} == {"p#high"}
