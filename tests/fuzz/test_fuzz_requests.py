"""The starter starts each message, dead-letters it with a reason, or leaves it in its place, with any content."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.request import message_group
from tests.fuzz.strategies import bodies, groups
from tests.support.cold_functions import Functions, Ran
from tests.support.in_process_aws import InProcessAws
from tests.support.in_process_tables import SETTLED, SLOTS
from tests.unit.work_account import record

# Mistakes in the code, as opposed to its input.
_MISTAKES = re.compile(r"\b(Key|Type|Attribute|Index|Recursion|Overflow|UnicodeEncode)Error\b|ValidationException")
VALID = {"process": "p", "arguments": {"--month": "1"}, "request_id": "order-1", "attempt": 2}
WEIGHTED = VALID | {"priority": "low", "weight": 2}
BOUNDED = VALID | {"when_busy": "skip", "start_before": "2099-11-28T08:00:00+01:00"}
PROCESS = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "2"},
    "slots_in_use": {"N": "0"},
    "holders": {"M": {}},
    "target": {"S": "job"},
}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """A message as the event source mapping passes it."""
    number = draw(st.integers(1, 10**6))
    message = {"receiptHandle": draw(st.sampled_from([f"handle-{number}", "spent"]))}
    attributes = {
        "ApproximateReceiveCount": str(draw(st.sampled_from([1, 2, 979, 980, 1000, 10**9]))),
        "SentTimestamp": str(draw(st.sampled_from([0, 1_800_000_000_000, 4_102_444_800_000, 10**15]))),
        "ApproximateFirstReceiveTimestamp": "1800000000000",
        "SenderId": "sender",
        "MessageGroupId": draw(st.sampled_from(["p", "p#low"]) | groups),
        "MessageDeduplicationId": draw(groups),
        "SequenceNumber": str(draw(st.integers(0, 10**39 - 1))),
    }
    return (
        record(draw(bodies(VALID) | bodies(WEIGHTED) | bodies(BOUNDED)), f"message-{number}")
        | message
        | {"attributes": attributes}
    )


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


def check_each_has_one_end(
    account: InProcessAws, sent: list[dict[str, Any]], ran: Ran, *, can_end_its_wait: bool = True
) -> None:
    stays = kept(ran)
    order = [record["messageId"] for record in sent]
    assert stays == order[len(order) - len(stays) :], "a message is not left on the queue, but an earlier one is"
    dead_lettered = {each["MessageDeduplicationId"]: each for each in account.sent_to("dead.fifo")}
    for message in sent:
        dead = dead_lettered.get(message["messageId"])
        # A dead-lettered message stays until its registration has ended, which keeps lower priorities out.
        both = dead and message["messageId"] in stays
        assert not (both and can_end_its_wait), "both dead-lettered and left on the queue"
        if dead:
            assert dead["MessageBody"] == message["body"]
            assert dead["MessageGroupId"] == message["messageId"]
            group = dead["MessageAttributes"]["message_group"]["StringValue"]
            assert group == message["attributes"]["MessageGroupId"]
            assert {"code", "reason", "receives", "sent_at"} <= dead["MessageAttributes"].keys()
        elif message["messageId"] not in stays:
            fields = json.loads(message["body"])
            wanted = fields.get("request_id", message["messageId"])
            group = message_group(fields["process"], fields.get("priority", "normal"))
            assert message["attributes"]["MessageGroupId"] == group, "started from another message group"
            inputs = [json.loads(one["input"]) for one in account.executions.values()]
            is_skipped = any(
                note.get("message_id") == {"S": message["messageId"]} for note in account.tables.items(SETTLED)
            )
            started = any((one["request_id"], one["process"]) == (wanted, fields["process"]) for one in inputs)
            assert started or (is_skipped and fields["when_busy"] == "skip"), (
                "neither started, nor skipped, nor dead-lettered, nor left on the queue"
            )


@given(sent=batches, limit=st.integers(0, 3), paused=st.booleans())
def test_every_message_is_started_dead_lettered_with_a_reason_or_left_on_the_queue(
    functions: Functions, sent: list[dict[str, Any]], limit: int, paused: bool
) -> None:
    account = functions.new_account()
    account.tables.put(SLOTS, PROCESS | {"slot_limit": {"N": str(limit)}, "paused": {"BOOL": paused}})
    ran = functions.run(functions.load("starter"), {"Records": sent})
    check_each_has_one_end(account, sent, ran)
    check_no_mistake_in_the_code(ran, sent)
    item = account.tables.item(SLOTS, "p")
    weight = sum(int(holder["M"].get("weight", {"N": "1"})["N"]) for holder in item["holders"]["M"].values())
    assert int(item["slots_in_use"]["N"]) == weight <= (0 if paused else limit)
    assert item["holders"]["M"].keys() == account.executions.keys()


REFUSALS = ["InvalidExecutionInput", "InvalidName", "AccessDeniedException", "ThrottlingException", "InternalFailure"]


@given(sent=records(), operation=st.sampled_from(["StartExecution", "UpdateItem", "SendMessage"]), data=st.data())
def test_a_message_has_one_end_if_aws_refuses_a_call(
    functions: Functions, sent: dict[str, Any], operation: str, data: st.DataObject
) -> None:
    account = functions.new_account()
    account.tables.put(SLOTS, PROCESS)
    account.refuse[operation] = data.draw(st.sampled_from(REFUSALS))
    ran = functions.run(functions.load("starter"), {"Records": [sent]})
    check_each_has_one_end(account, [sent], ran, can_end_its_wait=operation != "UpdateItem")
