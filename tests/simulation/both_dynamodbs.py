"""Sends each request to the simulated DynamoDB and to DynamoDB Local, which must give the same answer.

DynamoDB Local differs from DynamoDB in four points, in which the simulation follows DynamoDB:

- It returns no item with a failed condition, so the test reads the item instead.
- UPDATED_NEW and UPDATED_OLD return whole attributes. DynamoDB returns only the paths of the update (observed).
- It returns some numbers as they were written, such as 1.50. DynamoDB removes trailing zeros.
- It refuses an empty text, which DynamoDB has allowed outside of keys since 2020. No test writes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.account.tables import create_table
from tests.simulation.aws import dynamodb
from tests.simulation.aws.attributes import canonical_map
from tests.simulation.aws.dynamodb import INDEXES, KEY_ATTRIBUTES, SORT_KEYS
from tests.simulation.aws.expressions import Scope, projected
from tests.simulation.aws.updates import update
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.transcript import Answer, Outside, Question

Item = dict[str, Any]
REFUSED = "ConditionalCheckFailedException"
_NOT_COMPARED = ("ResponseMetadata", "ConsumedCapacity")


def make_tables(local: Any) -> None:
    """The simulation's tables on DynamoDB Local."""
    for table, key in KEY_ATTRIBUTES.items():
        create_table(local, table, key, SORT_KEYS.get(table, ""), INDEXES.get(table))


def key_of(table: str, item: Item) -> Item:
    """The key attributes of an item."""
    return {name: item[name] for name in (KEY_ATTRIBUTES[table], SORT_KEYS.get(table)) if name}


class Both(Outside):
    """An Outside that sends each question to both, and returns the simulation's answer.

    A context manager, which compares the table at its end.

    Args:
        local: a client of DynamoDB Local.
        table: the name of the table.
        items: its items.
        others: the items of further tables, for a transaction.
    """

    def __init__(self, local: Any, table: str, items: Iterable[Item], **others: Iterable[Item]) -> None:
        super().__init__(())
        self._local = local
        self._table = table
        self._tables = {name: list(given) for name, given in {table: items, **others}.items()}
        self._state = dynamodb.tables(**self._tables)
        for name, given in self._tables.items():
            for left in local.scan(TableName=name)["Items"]:
                local.delete_item(TableName=name, Key=key_of(name, left))
            for item in given:
                local.put_item(TableName=name, Item=item)
        self.met: Counter[str] = Counter()  # outcomes of conditional writes: an error's code, or empty

    def ask(self, question: Question) -> Any:
        """The answer of both.

        Raises:
            ClientError: the answer is an error.
            AssertionError: the answers differ.
        """
        self._state, answer = dynamodb.perform(self._state, question.operation, question.parameters)
        if "ConditionExpression" in question.parameters:
            self.met[answer.error] += 1
        is_ordered = question.operation == "query"
        self._compare(question, _comparable(answer, is_ordered), self._answer_of_local(question, is_ordered))
        return Outside((answer,)).ask(question)

    def _answer_of_local(self, question: Question, is_ordered: bool) -> Answer:
        parameters = question.parameters
        try:
            response = freeze(getattr(self._local, question.operation)(**thaw(parameters)))
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if reasons := error.response.get("CancellationReasons"):
                return _comparable(Answer(freeze({"CancellationReasons": reasons}), code))
            if code != REFUSED or parameters.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
                return Answer(error=code)
            return _comparable(Answer(self._read(parameters), code))
        if parameters.get("ReturnValues", "").startswith("UPDATED") and "Attributes" in response:
            response = response.with_fields(Attributes=_leaves(response["Attributes"], parameters))
        return _comparable(Answer(response), is_ordered)

    def _read(self, parameters: Record) -> Record | None:
        """The item that a write was refused for."""
        key = key_of(self._table, thaw(parameters.get("Key", parameters.get("Item"))))
        item = self._local.get_item(TableName=self._table, Key=key).get("Item")
        return record({"Item": freeze(item)}) if item else None

    def _compare(self, asked: Any, simulated: Any, local: Any) -> None:
        assert simulated == local, f"{asked}\n  simulated: {simulated}\n  DynamoDB Local: {local}"

    def __enter__(self) -> Both:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            held = {name: self._local.scan(TableName=name)["Items"] for name in self._tables}
            self._compare("final tables", self._state, dynamodb.tables(**held))


def _comparable(answer: Answer, is_ordered: bool = False) -> Answer:
    """The answer with canonical values, without metadata, and with items in one order, unless theirs counts."""
    if answer.value is None:
        return answer
    fields = dict(answer.value.without(*_NOT_COMPARED).fields)
    for name in {"Item", "Attributes"} & fields.keys():
        fields[name] = canonical_map(fields[name])
    if "Attributes" in fields and not fields["Attributes"].fields:
        del fields["Attributes"]
    if "Items" in fields:
        items = fields["Items"]
        fields["Items"] = tuple(canonical_map(item) for item in items) if is_ordered else _in_order(items)
    if "CancellationReasons" in fields:  # DynamoDB Local returns no item with a failed condition
        fields["CancellationReasons"] = tuple(reason["Code"] for reason in fields["CancellationReasons"])
    if "Responses" in fields:
        tables = fields["Responses"].fields
        fields["Responses"] = record({table: _in_order(items) for table, items in tables.items()})
    return answer._replace(value=record(fields))


def _in_order(items: tuple[Record, ...]) -> tuple[Record, ...]:
    return tuple(sorted(canonical_map(item) for item in items))


def _leaves(attributes: Record, request: Record) -> Record:
    """The parts of the attributes at the paths of the request's update."""
    names = request.get("ExpressionAttributeNames", record({}))
    return projected(update(request["UpdateExpression"]).paths, Scope(canonical_map(attributes), names, record({})))
