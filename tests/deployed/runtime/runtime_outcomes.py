"""The tables, queues and executions after a call of a function, read with boto3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.queue_reading import attributes, depth, peek
from dev.tools.invoke.function_stack import DeployedFunction
from slotkeeper.slots.process import Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import process_of_execution

# Table -> the attributes of its key.
TABLES = {
    "SlotTable": ("process_name",),
    "RequestTable": ("process_name", "execution"),
    "RequestLedgerTable": ("request_id",),
    "TokenTable": ("token_name",),
    "SeenSignatureTable": ("signature",),
}
QUEUES = ("DispatchQueue", "EndingQueue", "RequestDeadLetterQueue", "WorkQueue", "WorkDeadLetterQueue")


class Outcome:
    """The outcome of one event, with the function's answer and log."""

    def __init__(self, function: DeployedFunction, answer: Any, log: str) -> None:
        self.answer = answer
        self.log = log
        self.response = function.response()
        self._client = function.aws.client
        self._names = function.names

    def counted(self, metric: str) -> list[float]:
        """The values of a metric in the log."""
        lines = [json.loads(line) for line in self.log.splitlines() if '"_aws"' in line]
        return [value for line in lines for value in line.get(metric, [])]

    @property
    def failed_items(self) -> int:
        return len(self.answer["batchItemFailures"])

    @property
    def code(self) -> str:
        """The code of the chatbot's refusal."""
        return str(json.loads(self.answer["body"]).get("code"))

    def process(self, name: str) -> Process:
        process = Slots(self._client("dynamodb"), self._names["SlotTable"]).read(name)
        assert process is not None
        return process

    def state(self, execution: str) -> str:
        """The state of a request's row, with its code if it has one."""
        process = process_of_execution(execution.partition("#")[0])  # the name of a rejected one has its message's id
        row = self.row("RequestTable", process, execution)
        return " ".join(row[name] for name in ("state", "code") if name in row)

    def is_published(self, execution: str) -> bool:
        """Whether the end of a request's row is published."""
        process = process_of_execution(execution.partition("#")[0])
        return "expires" in (row := self.row("RequestTable", process, execution)) and "open" not in row

    def endings(self) -> list[dict[str, Any]]:
        """The ends that are to be published."""
        return [json.loads(each["body"]) for each in self.messages("EndingQueue")]

    def execution(self, name: str) -> str:
        """An execution's status; NONE if there is none of this name."""
        stepfunctions = self._client("stepfunctions")
        arn = f"{self._names['Workflow'].replace(':stateMachine:', ':execution:')}:{name}"
        try:
            return str(stepfunctions.describe_execution(executionArn=arn)["status"])
        except stepfunctions.exceptions.ExecutionDoesNotExist:
            return "NONE"

    def messages(self, queue: str) -> list[dict[str, str]]:
        """Body and attributes of the messages in a queue."""
        return [{"body": each["Body"]} | attributes(each) for each in peek(self._client("sqs"), self._names[queue])]

    def delayed(self, queue: str) -> int:
        """The number of delayed messages."""
        return depth(self._client("sqs"), self._names[queue])["delayed"]

    def codes(self, queue: str) -> list[str]:
        """The codes of the messages in a dead-letter queue."""
        return [each["code"] for each in self.messages(queue)]

    def row(self, table: str, *key: str) -> dict[str, Any]:
        """An item without types; empty if there is none."""
        wanted = {name: {"S": part} for name, part in zip(TABLES[table], key, strict=True)}
        answer = self._client("dynamodb").get_item(TableName=self._names[table], Key=wanted, ConsistentRead=True)
        return {name: next(iter(value.values())) for name, value in answer.get("Item", {}).items()}


Expectation = Callable[[Outcome], bool]


def work_dead_lettered(code: str, others: int = 0) -> Expectation:
    """One message of the worker's is dead-lettered, and `others` have succeeded."""
    return lambda outcome: (
        (outcome.failed_items, outcome.counted("WorkDeadLettered")) == (0, [1.0])
        and outcome.codes("WorkDeadLetterQueue") == [code]
        and len(outcome.counted("WorkSucceeded")) == others
    )


def wipe(function: DeployedFunction) -> None:
    """Remove everything that earlier events have left."""
    dynamodb, sqs = function.aws.client("dynamodb"), function.aws.client("sqs")
    for table, key in TABLES.items():
        if table in function.names:
            for item in dynamodb.scan(TableName=function.names[table])["Items"]:
                dynamodb.delete_item(TableName=function.names[table], Key={name: item[name] for name in key})
    for queue in QUEUES:
        if queue in function.names:
            sqs.purge_queue(QueueUrl=function.names[queue])
