"""The simulated DynamoDB reads and writes the items of moto's tables, in a fifth of moto's processor time.

tests/simulation compares it with DynamoDB Local. moto keeps the tables themselves, and items with an unknown key.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import SimpleNamespace
from typing import Any

from botocore.handlers import BUILTIN_HANDLERS, REGISTER_LAST
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.dynamodb.models import dynamodb_backends

from tests.simulation.account.boundary import note_parameters
from tests.simulation.account.in_process_tables import Refusal, Tables
from tests.simulation.aws.dynamodb import KEY_ATTRIBUTES, SORT_KEYS

OPERATIONS = (
    "GetItem",
    "BatchGetItem",
    "Scan",
    "Query",
    "PutItem",
    "DeleteItem",
    "UpdateItem",
    "TransactWriteItems",
)
_SIMULATED = {(key, SORT_KEYS.get(table)): table for table, key in KEY_ATTRIBUTES.items()}
_lock = Lock()


def install() -> None:
    """Let the clients of sessions that are created later use the simulated items while moto is active."""
    BUILTIN_HANDLERS.append(("before-parameter-build.dynamodb", note_parameters))
    BUILTIN_HANDLERS.append(("before-call", _answer, REGISTER_LAST))  # after the hooks of a test


def _answer(model: Any, context: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
    if not botocore_stubber.enabled or model.name not in OPERATIONS or model.service_model.service_name != "dynamodb":
        return None
    made = dynamodb_backends[DEFAULT_ACCOUNT_ID][context["client_region"]].tables
    parameters = context["parameters"]
    names = {name: _simulated(made.get(name)) for name in _tables_of(parameters)}
    if None in names.values():
        return None
    with _lock:
        items = {str(names[name]): vars(made[name]).setdefault("simulated_items", Tables()) for name in names}
        tables = Tables.joined(items)
        try:
            answer = tables.perform(model.name, _renamed(parameters, names))
        except Refusal as refusal:
            return SimpleNamespace(status_code=400, headers={}), refusal.answer
        for name, own in items.items():
            own.take(tables, name)
    if "RequestItems" in parameters:
        answer["Responses"] = {name: answer["Responses"][simulated] for name, simulated in names.items()}
    return SimpleNamespace(status_code=200, headers={}), answer


def _simulated(table: Any) -> str | None:
    return _SIMULATED.get((table.hash_key_attr, table.range_key_attr)) if table else None


def _tables_of(parameters: dict[str, Any]) -> set[str]:
    if "TableName" in parameters:
        return {parameters["TableName"]}
    parts = [part for each in parameters.get("TransactItems", ()) for part in each.values()]
    return {part["TableName"] for part in parts} or set(parameters["RequestItems"])


def _renamed(parameters: dict[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with the names of the simulated tables."""
    if "TableName" in parameters:
        return {**parameters, "TableName": names[parameters["TableName"]]}
    if "RequestItems" in parameters:
        return {"RequestItems": {names[name]: wanted for name, wanted in parameters["RequestItems"].items()}}
    parts = [{kind: _renamed(part, names) for kind, part in each.items()} for each in parameters["TransactItems"]]
    return {**parameters, "TransactItems": parts}
