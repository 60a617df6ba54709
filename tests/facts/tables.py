"""RequestTable and SlotTable for the rows of DynamoDB: the same calls on the embedded and on the simulated AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.facts.workflows import unique
from tests.simulation.account.tables import create_table
from tests.simulation.aws import dynamodb
from tests.simulation.transcript import Outside, Question

PROCESS = {"process_name": {"S": "p"}}
type Item = dict[str, Any]


class Tables:
    """Both tables, empty, and a client of boto3 or what answers as one.

    Args:
        conflict: lets the next call of an operation, named as in the API, meet a transaction.
    """

    def __init__(self, client: Any, requests: str, slots: str, conflict: Callable[[str], Any]) -> None:
        self.dynamodb, self.requests, self.slots = client, requests, slots
        self.conflict = conflict

    def add(self, execution: str, **attributes: Any) -> None:
        """Put a row of process p: a text, or a number."""
        values = {name: {"S": each} if isinstance(each, str) else {"N": str(each)} for name, each in attributes.items()}
        self.dynamodb.put_item(TableName=self.requests, Item=key(execution) | values)

    def query(self, index: str, condition: str = "", values: Item | None = None, **options: Any) -> Any:
        """A consistent query of an index for process p; `condition` on the index's sort key."""
        return self.dynamodb.query(
            TableName=self.requests,
            IndexName=index,
            KeyConditionExpression=f"process_name = :p{condition}",
            ExpressionAttributeValues={":p": {"S": "p"}, **(values or {})},
            **{"ConsistentRead": True, **options},
        )

    def pages(self, index: str, **options: Any) -> Iterator[list[str]]:
        """The executions of each page of `query`."""
        while True:
            answer = self.query(index, **options)
            yield executions(answer)
            if "LastEvaluatedKey" not in answer:
                return
            options["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def holders(self) -> Any:
        """The holders of process p."""
        return self.dynamodb.get_item(TableName=self.slots, Key=PROCESS, ConsistentRead=True)["Item"]["holders"]["M"]


def key(execution: str) -> Item:
    """The key of a row of process p."""
    return {**PROCESS, "execution": {"S": execution}}


def executions(answer: Any) -> list[str]:
    """The executions of the items of an answer, in their order."""
    return [item["execution"]["S"] for item in answer["Items"]]


def embedded(aws: EmbeddedAws) -> Tables:
    """New tables of the embedded AWS."""
    client, requests, slots = aws.client("dynamodb"), unique("requests"), unique("slots")
    create_table(client, requests, "process_name", "execution", dynamodb.INDEXES["requests"])
    create_table(client, slots, "process_name")
    return Tables(client, requests, slots, lambda operation: Faults(aws.state_dir).add(operation, "conflict"))


def simulated() -> Tables:
    """The tables of the simulated AWS."""
    outside = _Simulated()
    return Tables(outside.client("dynamodb"), "requests", "slots", outside.conflicts.append)


class _Simulated(Outside):
    """Answers each question immediately."""

    def __init__(self) -> None:
        super().__init__(())
        self._state = dynamodb.tables(requests=[], slots=[])
        self.conflicts: list[str] = []

    def ask(self, question: Question) -> Any:
        operation = question.operation.title().replace("_", "")
        if operation in self.conflicts:
            self.conflicts.remove(operation)
            answer = dynamodb.conflict(question.operation, question.parameters)
        else:
            self._state, answer = dynamodb.perform(self._state, question.operation, question.parameters)
        return Outside((answer,)).ask(question)
