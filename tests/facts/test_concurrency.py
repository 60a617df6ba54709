"""Facts of writes at the same time, of event sources, and of Lambda's loop detection."""

from __future__ import annotations

import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, documented, localstack
from tests.facts.workflows import ROLE, Workflows, unique
from tests.simulation.account.tables import create_table
from tests.waiting import wait_until

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
        note("sources", record["eventSourceARN"])
        while (folder / ("hold-" + record["body"])).exists():
            time.sleep(0.02)
    note("ended", str(len(event["Records"])))
    first = [each for each in event["Records"] if each["attributes"]["ApproximateReceiveCount"] == "1"]
    failed = [record for record in first if record["body"] == "failing"]
    return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in failed]}
"""


SQS_SOURCES = "lambda_/event_source_mapping/test_lambda_integration_sqs.py"


class Consumers:
    """Clients, state machines and functions that use one table or queue."""

    def __init__(self, aws: EmbeddedAws, folder: Path) -> None:
        self.workflows = Workflows(aws)
        self.client = aws.client
        self.folder = folder

    def connect(self, *queues: str, **mapping: Any) -> None:
        """Let one function receive the queues' messages, one at a time unless the event source mappings say more."""
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
        for queue in queues:
            functions.create_event_source_mapping(EventSourceArn=queue, FunctionName=name, **{"BatchSize": 1} | mapping)

    def begun(self) -> list[str]:
        """The messages that the function has received."""
        return self.noted("begun")

    def noted(self, file: str) -> list[str]:
        """The function's notes: each message that it has begun, each batch, or each end."""
        notes = self.folder / file
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


@FACTS.row(
    "An event source with a batch size of ten hands up to ten messages to one invocation.",
    source=documented("AWS Lambda Developer Guide, Using Lambda with Amazon SQS, Polling and batching streams"),
    expected=([10, 2], 12),
)
def batches_of_ten(consumers: Consumers) -> Any:
    sqs, (url, arn) = consumers.client("sqs"), consumers.workflows.queue()
    bodies = [f"{number:02}" for number in range(12)]
    for part in (bodies[:10], bodies[10:]):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": body, "MessageBody": body} for body in part])
    consumers.connect(arn, BatchSize=10)
    wait_until(lambda: len(consumers.begun()) == 12, "all messages")
    sizes = sorted((len(batch.split()) for batch in consumers.noted("batches")), reverse=True)  # the two run together
    return sizes, len(set(consumers.begun()))


@FACTS.row(
    "A function with two event sources receives the messages of one queue in a batch, which its records name.",
    source=documented("AWS Lambda Developer Guide, Using Lambda with Amazon SQS, Example standard queue message event"),
    expected=(["a1 a2", "b1 b2"], {"a": True, "b": True}),
)
def two_event_sources(consumers: Consumers) -> Any:
    sqs, queues = consumers.client("sqs"), {name: consumers.workflows.queue() for name in "ab"}
    for name, (url, _) in queues.items():
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": each, "MessageBody": name + each} for each in "12"])
    consumers.connect(*(arn for _, arn in queues.values()), BatchSize=10)
    wait_until(lambda: len(consumers.noted("sources")) == 4, "all messages")
    sources = dict(zip(consumers.begun(), consumers.noted("sources"), strict=True))
    named = {name: all(sources[name + each] == arn for each in "12") for name, (_, arn) in queues.items()}
    return sorted(consumers.noted("batches")), named


@FACTS.row(
    "An event source deletes the messages of a batch that the function does not report, and delivers the others again.",
    source=localstack(SQS_SOURCES, "test_report_batch_item_failures"),
    expected=(["failing other", "failing"], ("0", "0")),
)
def failures_of_a_batch(consumers: Consumers) -> Any:
    sqs, (url, arn) = consumers.client("sqs"), consumers.workflows.queue()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "3600"})
    bodies = ("failing", "other")
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": body, "MessageBody": body} for body in bodies])
    consumers.connect(arn, BatchSize=10, FunctionResponseTypes=["ReportBatchItemFailures"])
    names = [f"ApproximateNumberOfMessages{each}" for each in ("", "NotVisible")]

    def left() -> tuple[str, ...]:
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return tuple(counts[name] for name in names)

    wait_until(lambda: left() == ("0", "1"), "the end of the first delivery")
    failing = consumers.noted("handles")[consumers.begun().index("failing")]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=failing, VisibilityTimeout=0)
    wait_until(lambda: left() == ("0", "0"), "the end of the second delivery")
    return consumers.noted("batches"), left()


@FACTS.row(
    "An event source of a standard queue has at most MaximumConcurrency invocations at the same time.",
    source=documented("AWS Lambda Developer Guide, Configuring scaling behavior for SQS event source mappings"),
    expected=[2, 2, 2, 0],
)
def invocations_at_the_same_time(consumers: Consumers) -> list[int]:
    sqs, (url, arn) = consumers.client("sqs"), consumers.workflows.queue()
    bodies = [str(number) for number in range(6)]
    for body in bodies:
        (consumers.folder / f"hold-{body}").touch()
        sqs.send_message(QueueUrl=url, MessageBody=body)
    consumers.connect(arn, ScalingConfig={"MaximumConcurrency": 2})
    running = []
    for number in range(2, 7, 2):
        wait_until(lambda number=number: len(consumers.begun()) >= number, f"{number} messages")
        running.append(len(consumers.begun()) - len(consumers.noted("ended")))
        for body in consumers.begun():
            (consumers.folder / f"hold-{body}").unlink(missing_ok=True)
    wait_until(lambda: len(consumers.noted("ended")) == 6, "all ends")
    return [*running, len(consumers.begun()) - len(consumers.noted("ended"))]


@FACTS.row(
    "A template turns Lambda's loop detection off for a function; without that it is on.",
    source=documented("AWS CloudFormation Template Reference, AWS::Lambda::Function, RecursiveLoop"),
    expected=["Allow", "Terminate"],
)
def loop_detection(consumers: Consumers) -> list[str]:
    function = {
        "Runtime": "python3.13",
        "Role": ROLE,
        "Handler": "index.handler",
        "Code": {"ZipFile": "handler = print"},
    }
    properties = {unique("allowed"): function | {"RecursiveLoop": "Allow"}, unique("detected"): function}
    resources = {
        name.replace("-", ""): {"Type": "AWS::Lambda::Function", "Properties": {"FunctionName": name, **fields}}
        for name, fields in properties.items()
    }
    formation, stack = consumers.client("cloudformation"), unique("stack")
    formation.create_stack(StackName=stack, TemplateBody=json.dumps({"Resources": resources}))
    formation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 1})
    functions = consumers.client("lambda")
    return [functions.get_function_recursion_config(FunctionName=name)["RecursiveLoop"] for name in properties]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_concurrency(fact: Fact[Consumers], aws: EmbeddedAws, tmp_path: Path) -> None:
    fact.check(embedded=Consumers(aws, tmp_path))
