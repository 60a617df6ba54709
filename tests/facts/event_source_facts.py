"""Facts of writes at the same time, of event sources, and of Lambda's loop detection."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import EMBEDDED, Facts, documented, localstack
from tests.facts.machines import Machines, task
from tests.facts.queues import Queue
from tests.simulation.account.tables import create_table

# Notes each message, each batch and each end, waits while a message's hold file exists, and does not handle a message
# named "failing" at its first delivery.
HANDLER = """
import os, pathlib, time
folder = pathlib.Path(os.environ["FOLDER"])
def note(file, text):
    with open(folder / file, "a") as notes:
        notes.write(text + "\\n")
def handler(event, context):
    note("batches", " ".join(sorted(record["body"] for record in event["Records"])))
    for record in event["Records"]:
        note("begun", record["body"])
        note("handles", record["receiptHandle"])
        note("sources", record["body"] + " " + record["eventSourceARN"])
        while (folder / ("hold-" + record["body"])).exists():
            time.sleep(0.02)
    note("ended", str(len(event["Records"])))
    first = [each for each in event["Records"] if each["attributes"]["ApproximateReceiveCount"] == "1"]
    failed = [record for record in first if record["body"] == "failing"]
    return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in failed]}
"""


class Consumers:
    """A function that receives messages of queues, and its notes."""

    def __init__(self, aws: Account) -> None:
        self.aws, self.client = aws, aws.client
        self.folder = Path(tempfile.mkdtemp())
        aws.undo.append((f"folder {self.folder}", lambda: shutil.rmtree(self.folder)))

    def connect(self, *queues: Queue, **mapping: Any) -> None:
        """Let one function receive the queues' messages, one at a time unless `mapping` has another BatchSize."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as code:
            code.writestr("app.py", HANDLER)
        name, functions = self.aws.name("function"), self.client("lambda")
        functions.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self.aws.role,
            Handler="app.handler",
            Code={"ZipFile": archive.getvalue()},
            Timeout=600,
            Environment={"Variables": {"FOLDER": str(self.folder)}},
        )
        for queue in queues:
            fields = {"EventSourceArn": queue.arn, "BatchSize": 1} | mapping
            functions.create_event_source_mapping(FunctionName=name, **fields)

    def hold(self, body: str) -> Path:
        """The file while which exists the function handles this message."""
        file = self.folder / f"hold-{body}"
        file.touch()
        return file

    def begun(self) -> list[str]:
        """The messages that the function has received."""
        return self.noted("begun")

    def noted(self, file: str) -> list[str]:
        """The function's notes: each message that it has begun, each batch, or each end."""
        notes = self.folder / file
        return notes.read_text().splitlines() if notes.exists() else []


FACTS = Facts("event-sources", (EMBEDDED,), given=Consumers)  # a function cannot write notes here from AWS


@FACTS.row(
    "No conditional update of simultaneous clients and executions is lost.",
    source=documented("Amazon DynamoDB Developer Guide, Working with items and attributes, Conditional writes"),
    expected="72",
)
def f14_atomic_updates(consumers: Consumers) -> str:
    aws, dynamodb = consumers.aws, consumers.client("dynamodb")
    table, machines = aws.name("counters"), Machines(aws)
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
    add = task("dynamodb:updateItem", update)
    del add["End"]
    states = {f"Add{step}": add | {"Next": f"Add{step + 1}"} for step in range(5)}
    machine = machines.create(states | {"Add5": {"Type": "Succeed"}})
    with ThreadPoolExecutor(12) as pool:
        executions = list(pool.map(lambda _: machines.start(machine), range(12)))
        list(pool.map(lambda _: dynamodb.update_item(**update), range(12)))
    for execution in executions:
        machines.end_of(execution)
    item = dynamodb.get_item(TableName=table, Key=update["Key"], ConsistentRead=True)["Item"]
    return str(item["taken"]["N"])


@FACTS.row(
    "A message that is in flight is delivered to no other consumer, be it a client or a function.",
    source=documented("Amazon SQS Developer Guide, Amazon SQS visibility timeout"),
    expected=(500, 500),
)
def one_consumer_at_a_time(consumers: Consumers) -> tuple[int, int]:
    queue = Queue(consumers.aws, visibility=600)
    # Many visible messages: the longer a receive takes, the likelier is another one during it.
    for number in range(0, 500, 10):
        _send(queue, [str(each) for each in range(number, number + 10)])
    consumers.connect(queue)
    taken: list[str] = []

    def take() -> bool:
        while received := queue.receive():
            taken.extend(received)
        return len(taken) + len(consumers.begun()) >= 500

    consumers.aws.wait(take, "every message to be taken")
    everything = [*taken, *consumers.begun()]
    return len(everything), len(set(everything))


def _send(queue: Queue, bodies: list[str]) -> None:
    queue.client.send_message_batch(QueueUrl=queue.url, Entries=[{"Id": each, "MessageBody": each} for each in bodies])


@FACTS.row(
    "A function with two event sources receives up to ten messages of one queue in a batch, and its records name that "
    "queue.",
    source=documented(
        "AWS Lambda Developer Guide, Using Lambda with Amazon SQS, Polling and batching streams, and Example standard "
        "queue message event"
    ),
    expected=([("a", 2), ("a", 10), ("b", 2)], {"a": True, "b": True}),
)
def batches_of_two_event_sources(consumers: Consumers) -> Any:
    queues = {name: Queue(consumers.aws) for name in "ab"}
    for name, numbers in (("a", range(10)), ("a", range(10, 12)), ("b", range(2))):
        _send(queues[name], [f"{name}{number}" for number in numbers])
    consumers.connect(*queues.values(), BatchSize=10)
    consumers.aws.wait(lambda: len(consumers.noted("sources")) == 14, "all messages")
    batches = [batch.split() for batch in consumers.noted("batches")]
    sources = [note.split() for note in consumers.noted("sources")]
    named = {name: {arn for body, arn in sources if body[0] == name} == {queues[name].arn} for name in "ab"}
    return sorted((batch[0][0], len(batch)) for batch in batches), named


@FACTS.row(
    "An event source deletes the messages of a batch that the function does not report, and delivers the others again.",
    source=localstack("lambda_/event_source_mapping/test_lambda_integration_sqs.py", "test_report_batch_item_failures"),
    expected=(["failing other", "failing"], [0, 0]),
)
def failures_of_a_batch(consumers: Consumers) -> Any:
    queue, wait = Queue(consumers.aws, visibility=3600), consumers.aws.wait
    _send(queue, ["failing", "other"])
    consumers.connect(queue, BatchSize=10, FunctionResponseTypes=["ReportBatchItemFailures"])
    wait(lambda: queue.counts("", "NotVisible") == [0, 1], "the end of the first delivery")
    queue.hide(consumers.noted("handles")[consumers.begun().index("failing")], 0)
    wait(lambda: queue.counts("", "NotVisible") == [0, 0], "the end of the second delivery")
    return consumers.noted("batches"), queue.counts("", "NotVisible")


@FACTS.row(
    "An event source of a standard queue has at most MaximumConcurrency invocations at the same time.",
    source=documented("AWS Lambda Developer Guide, Configuring scaling behavior for SQS event source mappings"),
    expected=[2, 2, 2, 0],
)
def invocations_at_the_same_time(consumers: Consumers) -> list[int]:
    queue, wait, bodies = Queue(consumers.aws), consumers.aws.wait, [str(number) for number in range(6)]
    holds = {body: consumers.hold(body) for body in bodies}
    _send(queue, bodies)
    consumers.connect(queue, ScalingConfig={"MaximumConcurrency": 2})
    running = []
    for number in range(2, 7, 2):
        wait(lambda number=number: len(consumers.begun()) >= number, f"{number} messages")  # type: ignore[misc]
        running.append(len(consumers.begun()) - len(consumers.noted("ended")))
        for body in consumers.begun():
            holds[body].unlink(missing_ok=True)
    wait(lambda: len(consumers.noted("ended")) == 6, "all ends")
    return [*running, len(consumers.begun()) - len(consumers.noted("ended"))]
