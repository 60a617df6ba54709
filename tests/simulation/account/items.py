"""DynamoDB over the simulated tables."""

from __future__ import annotations

from botocore import xform_name

from tests.simulation.account.service import Parameters, Service, unfrozen
from tests.simulation.account.tables import Index
from tests.simulation.aws import dynamodb
from tests.simulation.frozen import freeze, thaw

SLOTS, TOKENS, SEEN, LEDGER = "slots", "tokens", "signatures", "ledger"
REQUESTS, DOWNSTREAMS = "requests", "downstreams"
# Each account has these tables, empty at first.
PRODUCT_TABLES = tuple(dynamodb.KEY_ATTRIBUTES)

Item = Parameters


class Tables:
    """Each table's items by their keys."""

    def __init__(self) -> None:
        self._state = dynamodb.tables(**{table: [] for table in PRODUCT_TABLES})

    def create(self, table: str, key: str, sort_key: str, indexes: dict[str, Index]) -> None:
        dynamodb.declare(table, key, sort_key, indexes)
        self._state = self._state.with_fields(**dynamodb.tables(**{table: []}).fields)

    def put(self, table: str, item: Item) -> Item:
        """Write any item, and return it as DynamoDB stores it."""
        self.perform("PutItem", {"TableName": table, "Item": item})
        names = (dynamodb.KEY_ATTRIBUTES[table], dynamodb.SORT_KEYS.get(table))
        return self.item(table, "\n".join(item[name]["S"] for name in names if name))

    def item(self, table: str, key: str) -> Item:
        """The item, or an empty one. Two key attributes are separated by a line feed."""
        return dynamodb.item_of(self._state, table, key) or {}

    def items(self, table: str) -> list[Item]:
        return [thaw(item) for item in self._state[table].fields.values()]

    def perform(self, operation: str, parameters: Parameters) -> Parameters:
        """The answer to an operation. Raises Refusal."""
        self._state, answer = dynamodb.perform(self._state, xform_name(operation), freeze(parameters))
        result: Parameters = unfrozen(answer)
        return result


class DynamoDb(Service):
    """The tables of the product, and others that are created."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables()

    def _CreateTable(self, parameters: Parameters) -> Parameters:
        kinds = {each["AttributeName"]: each["AttributeType"] for each in parameters["AttributeDefinitions"]}
        key, sort_key = _keys(parameters)
        indexes = {}
        for is_global in (False, True):
            for each in parameters.get(f"{'Global' if is_global else 'Local'}SecondaryIndexes", ()):
                hash_key, range_key = _keys(each)
                by = range_key or hash_key
                included = tuple(each["Projection"].get("NonKeyAttributes", ()))
                indexes[each["IndexName"]] = Index(by, kinds[by], included, is_global, is_by_itself=not range_key)
        self.tables.create(parameters["TableName"], key, sort_key, indexes)
        return {"TableDescription": {"TableName": parameters["TableName"], "TableStatus": "ACTIVE"}}

    def _DescribeTable(self, parameters: Parameters) -> Parameters:
        name = parameters["TableName"]
        self.tables.perform("Scan", {"TableName": name, "Limit": 1})  # refused without the table
        return {"Table": {"TableName": name, "TableStatus": "ACTIVE", "KeySchema": _schema(name)}}


def _keys(declared: Parameters) -> tuple[str, str]:
    names = {each["KeyType"]: each["AttributeName"] for each in declared["KeySchema"]}
    return names["HASH"], names.get("RANGE", "")


def _schema(table: str) -> list[Parameters]:
    keys = {"HASH": dynamodb.KEY_ATTRIBUTES[table], "RANGE": dynamodb.SORT_KEYS.get(table)}
    return [{"AttributeName": name, "KeyType": kind} for kind, name in keys.items() if name]
