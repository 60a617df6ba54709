"""The simulated DynamoDB reads and writes the items of moto's tables, in a fifth of moto's processor time.

tests/simulation compares it with DynamoDB Local. moto keeps the tables themselves, and items with an unknown key.
"""

from __future__ import annotations

from threading import Lock
from types import SimpleNamespace
from typing import Any

from botocore.handlers import BUILTIN_HANDLERS, REGISTER_LAST
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.dynamodb.models import dynamodb_backends

from tests.simulation.aws.dynamodb import KEY_ATTRIBUTES
from tests.support.boundary import note_parameters
from tests.support.in_process_tables import Refusal, Tables

OPERATIONS = ("GetItem", "BatchGetItem", "Scan", "PutItem", "DeleteItem", "UpdateItem")
_SIMULATED = {key: table for table, key in KEY_ATTRIBUTES.items()}
_lock = Lock()


def install() -> None:
    """Let the clients of sessions that are created later use the simulated items while moto is active."""
    BUILTIN_HANDLERS.append(("before-parameter-build.dynamodb", note_parameters))
    BUILTIN_HANDLERS.append(("before-call", _answer, REGISTER_LAST))  # after the hooks of a test


def _answer(model: Any, context: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
    if not botocore_stubber.enabled or model.name not in OPERATIONS or model.service_model.service_name != "dynamodb":
        return None
    parameters = context["parameters"]
    batch = parameters.get("RequestItems", {})
    (name,) = batch or [parameters["TableName"]]
    made = dynamodb_backends[DEFAULT_ACCOUNT_ID][context["client_region"]].tables.get(name)
    simulated = _SIMULATED.get(made.hash_key_attr) if made else None
    if simulated is None:
        return None
    renamed = {"RequestItems": {simulated: batch[name]}} if batch else {**parameters, "TableName": simulated}
    with _lock:
        items = vars(made).setdefault("simulated_items", Tables())
        try:
            answer = items.perform(model.name, renamed)
        except Refusal as refusal:
            return SimpleNamespace(status_code=400, headers={}), refusal.answer
    if batch:
        answer["Responses"] = {name: answer["Responses"][simulated]}
    return SimpleNamespace(status_code=200, headers={}), answer
