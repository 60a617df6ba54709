"""DynamoDB as a pure function: tables and a request give tables and an answer."""

from __future__ import annotations

from tests.simulation.frozen import Record
from tests.simulation.transcript import Answer


def perform(tables: Record, operation: str, parameters: Record) -> tuple[Record, Answer]:
    """One operation, atomic: the tables after it, and the answer."""
    raise NotImplementedError
