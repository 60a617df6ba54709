"""The starter queues each message as a row, dead-letters it with a reason, or leaves it, with any content."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.queues import MAX_BODY_CHARACTERS
from slotkeeper.slots.request import MAX_BODY_BYTES
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.cold_functions import Functions, Ran
from tests.simulation.account.items import REQUESTS, SLOTS
from tests.unit.fuzz.strategies import bodies, groups
from tests.unit.work_messages import record

# Mistakes in the code, as opposed to its input.
_MISTAKES = re.compile(r"\b(Key|Type|Attribute|Index|Recursion|Overflow|UnicodeEncode)Error\b|ValidationException")
VALID = {"process": "p", "arguments": {"--month": "1"}, "request_id": "order-1", "attempt": 2}
WEIGHTED = VALID | {"priority": "low", "weight": 2, "key": "acme"}
BOUNDED = VALID | {"when_busy": "skip", "start_before": "2099-11-28T08:00:00+01:00"}
PROCESS = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "2"},
    "slots_in_use": {"N": "0"},
    "holders": {"M": {}},
    "target": {"S": "job"},
    "grants": {"N": "1"},
}
# SQS takes bodies of up to 1 MiB (SQS API Reference, SendMessage).
sizes = st.sampled_from([MAX_BODY_BYTES - 100, MAX_BODY_BYTES, 200_000, 1_048_000])
large_bodies = sizes.map(lambda size: json.dumps(VALID | {"arguments": {"--text": "x" * size}})[:1_048_576])


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """A message as the event source mapping passes it."""
    number = draw(st.integers(1, 10**6))
    attributes = {
        "ApproximateReceiveCount": str(draw(st.sampled_from([1, 2, 19]))),
        "SentTimestamp": str(draw(st.sampled_from([0, 1_800_000_000_000, 4_102_444_800_000, 10**15]))),
        "ApproximateFirstReceiveTimestamp": "1800000000000",
        "SenderId": "sender",
        "MessageGroupId": draw(st.sampled_from(["p", "p#low"]) | groups),
        "MessageDeduplicationId": draw(groups),
        "SequenceNumber": str(draw(st.integers(0, 10**39 - 1))),
    }
    body = draw(bodies(VALID) | bodies(WEIGHTED) | bodies(BOUNDED) | large_bodies)
    message = {"receiptHandle": f"handle-{number}", "eventSourceARN": "arn:aws:sqs:us-east-1:1:requests.fifo"}
    return record(body, f"message-{number}") | message | {"attributes": attributes}


batches = st.lists(records(), min_size=1, max_size=4, unique_by=lambda record: record["messageId"])


def kept(ran: Ran) -> list[str]:
    """The messages that stay on the queue."""
    assert ran.raised is None, ran
    assert list(ran.answer) == ["batchItemFailures"], ran
    return [failure["itemIdentifier"] for failure in ran.answer["batchItemFailures"]]


def check_no_mistake_in_the_code(ran: Ran, *given: Any) -> None:
    """Except mistakes quoted from the input: Hypothesis also generates the names of exceptions."""
    texts = json.dumps(given)
    assert not [mistake for mistake in _MISTAKES.finditer(ran.logged) if mistake.group() not in texts], ran


def check_each_has_one_end(account: AwsAccount, sent: list[dict[str, Any]], ran: Ran) -> None:
    stays = kept(ran)
    dead_lettered = {each["MessageDeduplicationId"]: each for each in account.sent_to("dead.fifo")}
    rows = account.tables.items(REQUESTS)
    by_message = {row.get("message_id", {}).get("S"): row for row in rows}
    for message in sent:
        dead, row = dead_lettered.get(message["messageId"]), by_message.get(message["messageId"])
        assert not (dead and row), "both a row and a dead letter"
        if dead:
            assert message["messageId"] not in stays, "both dead-lettered and left on the queue"
            assert dead["MessageBody"] == message["body"][:MAX_BODY_CHARACTERS]
            assert dead["MessageGroupId"] == message["messageId"]
            group = dead["MessageAttributes"]["message_group"]["StringValue"]
            assert group == message["attributes"]["MessageGroupId"]
            assert {"code", "reason", "sent_at"} <= dead["MessageAttributes"].keys()
        elif row:
            assert ("body" in row) == (row.get("code", {}).get("S") not in ("TooLarge", "RequestIdReused")), row
            assert ("place" in row) == (row["state"]["S"] == "QUEUED"), row
        elif message["messageId"] not in stays:  # the same request again
            fields = json.loads(message["body"])
            same = [each for each in rows if each.get("request_id") == {"S": fields["request_id"]}]
            assert same, "neither a row, nor a dead letter, nor left on the queue"


@given(sent=batches, limit=st.integers(0, 3), paused=st.booleans())
def test_every_message_is_a_row_or_is_dead_lettered_with_a_reason(
    functions: Functions, sent: list[dict[str, Any]], limit: int, paused: bool
) -> None:
    account = functions.new_account()
    account.tables.put(SLOTS, PROCESS | {"slot_limit": {"N": str(limit)}, "paused": {"BOOL": paused}})
    ran = functions.run(functions.load("starter"), {"Records": sent})
    assert kept(ran) == []
    check_each_has_one_end(account, sent, ran)
    check_no_mistake_in_the_code(ran, sent)
    item = account.tables.item(SLOTS, "p")
    weight = sum(int(holder["M"].get("weight", {"N": "1"})["N"]) for holder in item["holders"]["M"].values())
    assert int(item["slots_in_use"]["N"]) == weight <= (0 if paused else limit)
    started = {row["execution"]["S"] for row in account.tables.items(REQUESTS) if row["state"]["S"] == "STARTED"}
    assert item["holders"]["M"].keys() == account.executions.keys() == started


REFUSALS = ["InvalidExecutionInput", "InvalidName", "AccessDeniedException", "ThrottlingException", "InternalFailure"]
CALLS = ["StartExecution", "PutItem", "UpdateItem", "TransactWriteItems", "GetItem", "Query", "BatchGetItem"]


@given(sent=records(), operation=st.sampled_from([*CALLS, "SendMessage"]), data=st.data())
def test_a_message_has_one_end_if_aws_refuses_a_call(
    functions: Functions, sent: dict[str, Any], operation: str, data: st.DataObject
) -> None:
    account = functions.new_account()
    account.tables.put(SLOTS, PROCESS)
    account.refuse[operation] = data.draw(st.sampled_from(REFUSALS))
    ran = functions.run(functions.load("starter"), {"Records": [sent]})
    check_each_has_one_end(account, [sent], ran)
    check_no_mistake_in_the_code(ran, sent)
