"""Dead-letter messages of the starter, and failed requests that the janitor keeps."""

from __future__ import annotations

from slotkeeper.slots.queues import MAX_BODY_CHARACTERS, FailedRequestQueue, RequestDeadLetterQueue
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


def test_a_kept_request_has_the_attributes_of_the_workflows_state() -> None:
    scene = QueueScene()
    failed = FailedRequestQueue(scene.sqs, "https://sqs/failed")
    failed.keep("{}", "p-1", "Glue", "why", "TIMEOUT")
    failed.keep("", "p-2", "E" * 300, "c" * 9000)
    first, second = scene.aws.sent_to("failed")
    expected = {
        "execution_name": "p-1",
        "error": "Glue",
        "cause": "why",
        "kept_by": "janitor",
        "glue_run_state": "TIMEOUT",
    }
    assert _texts(first["MessageAttributes"]) == expected
    assert second["MessageBody"] == "{}"
    texts = _texts(second["MessageAttributes"])
    assert (len(texts["error"]), len(texts["cause"]), "glue_run_state" in texts) == (256, 8000, False)
