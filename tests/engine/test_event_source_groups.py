"""event_source_groups: message groups are handled in parallel; a wake delivers a hidden message immediately."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import lines, queue_arn
from tests.support.waiting import wait_until

# Records the begin of a message. Waits while the message's hold file exists, and refuses it if its refuse file exists.
HANDLER = """
import os, time, pathlib
folder = pathlib.Path(os.environ["FOLDER"])
def handler(event, context):
    record = event["Records"][0]
    with open(folder / "begun", "a") as notes:
        notes.write(" ".join([record["body"], record["receiptHandle"]]) + "\\n")
    while (folder / ("hold-" + record["body"])).exists():
        time.sleep(0.02)
    refused = (folder / ("refuse-" + record["body"])).exists()
    return {"batchItemFailures": [{"itemIdentifier": record["messageId"]}] if refused else []}
"""


def has_more_than(file: Path, count: int) -> bool:
    return len(lines(file)) > count


def connected(aws: EmbeddedAws, function: Callable[..., str], url: str, folder: Path) -> None:
    name = function(HANDLER, Environment={"Variables": {"FOLDER": str(folder)}})
    aws.client("lambda").create_event_source_mapping(
        EventSourceArn=queue_arn(aws, url),
        FunctionName=name,
        BatchSize=1,
        FunctionResponseTypes=["ReportBatchItemFailures"],
    )


def test_groups_are_handled_in_parallel_and_each_in_order(
    aws: EmbeddedAws, fifo: Callable[..., str], function: Callable[..., str], tmp_path: Path
) -> None:
    sqs, url = aws.client("sqs"), fifo()
    (tmp_path / "hold-a1").touch()
    connected(aws, function, url, tmp_path)
    for body in ("a1", "a2", "b1", "b2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    begun = tmp_path / "begun"
    wait_until(lambda: len(lines(begun)) == 3, "every message that can begin while a1 is held")
    assert sorted(line.split()[0] for line in lines(begun)) == ["a1", "b1", "b2"]
    (tmp_path / "hold-a1").unlink()
    wait_until(lambda: len(lines(begun)) == 4, "a2")
    assert lines(begun)[3].split()[0] == "a2"


def test_a_woken_message_reaches_its_function_although_it_is_hidden_for_hours(
    aws: EmbeddedAws, fifo: Callable[..., str], function: Callable[..., str], tmp_path: Path
) -> None:
    sqs, url = aws.client("sqs"), fifo(VisibilityTimeout="36000")
    (tmp_path / "refuse-a1").touch()
    connected(aws, function, url, tmp_path)
    sqs.send_message(QueueUrl=url, MessageBody="a1", MessageGroupId="a")
    begun = tmp_path / "begun"
    wait_until(lambda: lines(begun), "the function")
    for _ in range(5):
        times = len(lines(begun))
        handle = lines(begun)[-1].split()[1]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        wait_until(partial(has_more_than, begun, times), "the function, woken")
