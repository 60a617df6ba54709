"""The simulated DynamoDB of tests/simulation with the interface of a client, to compare other simulations with it."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from tests.support.in_process_tables import Refusal, Tables


class ComparedTable:
    """The client. A refusal is a ClientError."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get_item(self, **parameters: Any) -> Any:
        return self._tables.perform("GetItem", parameters)

    def put_item(self, **parameters: Any) -> Any:
        return self._write("PutItem", parameters)

    def update_item(self, **parameters: Any) -> Any:
        return self._write("UpdateItem", parameters)

    def _write(self, operation: str, parameters: dict[str, Any]) -> Any:
        try:
            return self._tables.perform(operation, parameters)
        except Refusal as refusal:
            answer: Any = refusal.answer
            raise ClientError(answer, operation) from None
