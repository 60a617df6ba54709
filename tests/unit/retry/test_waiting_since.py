"""From when the age of a message that is held back counts."""

from __future__ import annotations

import pytest
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.retry.deferral import waiting_since
from slotkeeper.retry.message import Message

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.mark.parametrize(
    ("retries", "received", "since"),
    [
        pytest.param((), NOW - 50, NOW - 50, id="never attempted"),
        pytest.param((NOW - 3600, NOW - 60), NOW - 50, NOW - 3600, id="a retry"),
        pytest.param((NOW - 9 * DAY,), NOW - 50, NOW - 50, id="redriven after nine days"),
        pytest.param((NOW - 9 * DAY,), NOW - 7 * DAY, NOW - 7 * DAY, id="redriven, and held back for eight days"),
    ],
)
def test_the_age_counts_from_the_first_attempt_or_from_the_redrive(
    retries: tuple[float, ...], received: float, since: float
) -> None:
    attributes = {"ApproximateFirstReceiveTimestamp": str(int(received * 1000)), "SentTimestamp": "0"}
    record = SQSRecord({"attributes": attributes, "messageAttributes": {}})
    assert waiting_since(record, Message("r", {}, retries), DAY) == since
