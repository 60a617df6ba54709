"""Dead-letter messages of the starter."""

from __future__ import annotations

from slotkeeper.slots.queues import MAX_BODY_CHARACTERS, RequestDeadLetterQueue
from tests.unit.conftest import delivery
from tests.unit.slots.queue_scene import QueueScene


def _texts(sent: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in sent.items()}


def test_a_dead_letter_message_has_its_reason_and_its_body_without_a_token() -> None:
    scene = QueueScene()
    queue = RequestDeadLetterQueue(scene.sqs, "https://sqs/dead.fifo")
    queue.add(delivery("junk \u2603", "g", message_id="m-1"), "InvalidRequest", "because\x00of a \x07 bell")
    queue.add(delivery('{"task_token": "secret"}', message_id="m-2"), "InvalidRequest", "why")
    queue.add(delivery("x" * 1_000_000, message_id="m-3"), "InvalidRequest", "why")

    sent = scene.aws.sent_to("dead.fifo")
    texts = _texts(sent[0]["MessageAttributes"])
    assert (sent[0]["MessageBody"], texts["reason"], texts["message_group"]) == (
        "junk \u2603",
        "because?of a ? bell",
        "g",
    )
    assert "secret" not in sent[1]["MessageBody"]
    assert len(sent[2]["MessageBody"]) == MAX_BODY_CHARACTERS
    # SQS returns at most ten messages of a group, and the operator command must find each. A repetition is dropped.
    assert [each["MessageGroupId"] for each in sent] == ["m-1", "m-2", "m-3"]
    assert [each["MessageDeduplicationId"] for each in sent] == ["m-1", "m-2", "m-3"]
