"""Facts of calls at the same time: writes are atomic, and an event source handles message groups in parallel."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.conformance.facts import Fact, Facts, documented
from tests.conformance.workflows import ROLE, Workflows, unique
from tests.support.tables import create_table
from tests.support.waiting import wait_until

# Notes each message, and waits while its hold file exists.
HANDLER = """
import os, pathlib, time
folder = pathlib.Path(os.environ["FOLDER"])
def handler(event, context):
    for record in event["Records"]:
        with open(folder / "begun", "a") as notes:
            notes.write(record["body"] + "\\n")
        while (folder / ("hold-" + record["body"])).exists():
            time.sleep(0.02)
"""


class Consumers:
    """Clients, state machines and functions that use one table or queue."""

    def __init__(self, aws: EmbeddedAws, folder: Path) -> None:
        self.workflows = Workflows(aws)
        self.client = aws.client
        self.folder = folder

    def connect(self, queue: str) -> None:
        """Let a function receive the queue's messages, one at a time."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as code:
            code.writestr("app.py", HANDLER)
        name, functions = unique("function"), self.client("lambda")
        functions.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="app.handler",
            Code={"ZipFile": archive.getvalue()},
            Timeout=600,
            Environment={"Variables": {"FOLDER": str(self.folder)}},
        )
        functions.create_event_source_mapping(EventSourceArn=queue, FunctionName=name, BatchSize=1)

    def begun(self) -> list[str]:
        """The messages that the function has received."""
        notes = self.folder / "begun"
        return notes.read_text().splitlines() if notes.exists() else []


FACTS: Facts[Consumers] = Facts()


@FACTS.row(
    "No conditional update of simultaneous clients and executions is lost.",
    source=documented("Amazon DynamoDB Developer Guide, Working with items and attributes, Conditional writes"),
    expected="72",
)
def f14_atomic_updates(consumers: Consumers) -> str:
    dynamodb, table, workflows = consumers.client("dynamodb"), unique("counters"), consumers.workflows
    create_table(dynamodb, table, "name")
    # A large item: the longer a write takes, the likelier is another one during it.
    ballast = {"M": {f"entry{number}": {"S": "x"} for number in range(3000)}}
    dynamodb.put_item(TableName=table, Item={"name": {"S": "c"}, "taken": {"N": "0"}, "ballast": ballast})
    update = {
        "TableName": table,
        "Key": {"name": {"S": "c"}},
        "UpdateExpression": "SET taken = taken + :one",
        "ConditionExpression": "taken < :limit",
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":limit": {"N": "10000"}},
    }
    task = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:updateItem", "Arguments": update}
    states = {f"Add{step}": task | {"Next": f"Add{step + 1}"} for step in range(5)}
    machine = workflows.create(states | {"Add5": {"Type": "Succeed"}})
    with ThreadPoolExecutor(12) as pool:
        executions = list(pool.map(lambda _: workflows.start(machine), range(12)))
        list(pool.map(lambda _: dynamodb.update_item(**update), range(12)))
    for execution in executions:
        workflows.end_of(execution)
    item = dynamodb.get_item(TableName=table, Key=update["Key"], ConsistentRead=True)["Item"]
    return str(item["taken"]["N"])


@FACTS.row(
    "A message that is in flight is delivered to no other consumer, be it a client or a function.",
    source=documented("Amazon SQS Developer Guide, Amazon SQS visibility timeout"),
    expected=(500, 500),
)
def one_consumer_at_a_time(consumers: Consumers) -> tuple[int, int]:
    sqs, (url, arn) = consumers.client("sqs"), consumers.workflows.queue()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "600"})
    # Many visible messages: the longer a receive takes, the likelier is another one during it.
    for number in range(0, 500, 10):
        entries = [{"Id": str(each), "MessageBody": str(each)} for each in range(number, number + 10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    consumers.connect(arn)
    taken: list[str] = []

    def take() -> bool:
        taken.extend(message["Body"] for message in sqs.receive_message(QueueUrl=url).get("Messages", []))
        return len(taken) + len(consumers.begun()) >= 500

    wait_until(take, "every message to be taken", interval=0)
    everything = [*taken, *consumers.begun()]
    return len(everything), len(set(everything))


@FACTS.row(
    "An event source handles the message groups of a FIFO queue in parallel, and each in its order.",
    source=documented("AWS Lambda Developer Guide, Configuring scaling behavior for SQS event source mappings"),
    expected=(["a1", "b1", "b2"], ["a2"]),
)
def groups_in_parallel(consumers: Consumers) -> Any:
    sqs, hold = consumers.client("sqs"), consumers.folder / "hold-a1"
    hold.touch()
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{unique('groups')}.fifo", Attributes=attributes)["QueueUrl"]
    consumers.connect(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])
    for body in ("a1", "a2", "b1", "b2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    wait_until(lambda: len(consumers.begun()) == 3, "every message that can begin while a1 is held")
    held = sorted(consumers.begun())
    hold.unlink()
    wait_until(lambda: len(consumers.begun()) == 4, "a2")
    return held, consumers.begun()[3:]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_concurrency(fact: Fact[Consumers], aws: EmbeddedAws, tmp_path: Path) -> None:
    fact.check(embedded=Consumers(aws, tmp_path))
