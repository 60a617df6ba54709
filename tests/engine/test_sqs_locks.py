"""sqs_locks: a message is delivered to one consumer at a time, also if one of them is a Lambda event source."""

from collections.abc import Callable
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import lines, queue_arn
from tests.support.waiting import wait_until

TENS = 80
NOTE = """
import os
def handler(event, context):
    with open(os.environ["FILE"], "a") as notes:
        notes.writelines(record["messageId"] + "\\n" for record in event["Records"])
"""


def test_no_message_is_delivered_to_a_client_and_a_function_at_the_same_time(
    aws: EmbeddedAws, function: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    sqs, notes = aws.client("sqs"), tmp_path / "notes"
    url = sqs.create_queue(QueueName=unique("shared"), Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    # Many visible messages: the longer a receive takes, the likelier is another one during it.
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
    for _ in range(TENS):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    name = function(NOTE, Environment={"Variables": {"FILE": str(notes)}})
    aws.client("lambda").create_event_source_mapping(EventSourceArn=queue_arn(aws, url), FunctionName=name, BatchSize=1)
    taken: list[str] = []

    def take() -> bool:
        taken.extend(message["MessageId"] for message in sqs.receive_message(QueueUrl=url).get("Messages", []))
        return len(taken) + len(lines(notes)) >= TENS * 10

    wait_until(take, "every message to be taken", interval=0)
    everything = taken + lines(notes)
    assert len(everything) == len(set(everything))
