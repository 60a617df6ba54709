"""RequestTable and SlotTable for rows, with the process p."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import REAL, SIMULATED
from tests.simulation.account.tables import create_table
from tests.simulation.aws.dynamodb import INDEXES

PROCESS = {"process_name": {"S": "p"}}
type Item = dict[str, Any]


class Tables:
    """Both tables, empty; each is created when it is first used."""

    def __init__(self, aws: Account) -> None:
        self.aws, self.dynamodb = aws, aws.client("dynamodb")

    @cached_property
    def requests(self) -> str:
        """The name of RequestTable."""
        return self._create("requests", "execution", INDEXES["requests"])

    @cached_property
    def slots(self) -> str:
        """The name of SlotTable."""
        return self._create("slots")

    def _create(self, stem: str, *more: Any) -> str:
        if self.aws.place == SIMULATED:
            return stem
        name = self.aws.name(stem)
        create_table(self.dynamodb, name, "process_name", *more)
        if self.aws.place == REAL:
            self.dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 3})
        return name

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

    def process(self) -> Any:
        """The item of process p."""
        return self.dynamodb.get_item(TableName=self.slots, Key=PROCESS, ConsistentRead=True)["Item"]

    def update_process(self, **expressions: Any) -> Any:
        """UpdateItem of process p."""
        return self.dynamodb.update_item(TableName=self.slots, Key=PROCESS, **expressions)


def key(execution: str) -> Item:
    """The key of a row of process p."""
    return {**PROCESS, "execution": {"S": execution}}


def executions(answer: Any) -> list[str]:
    """The executions of the items of an answer, in their order."""
    return [item["execution"]["S"] for item in answer["Items"]]
