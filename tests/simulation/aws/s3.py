"""S3's PutObject as a pure function: key -> body."""

from __future__ import annotations

from tests.simulation.frozen import Record, record
from tests.simulation.transcript import Answer

_EMPTY = record({})
_DONE = Answer(_EMPTY)


def objects() -> Record:
    """An empty bucket."""
    return _EMPTY


def perform(objects: Record, operation: str, parameters: Record, _now: float) -> tuple[Record, Answer]:
    """PutObject; with IfNoneMatch `*` only for a new key (S3 User Guide, "How to prevent object overwrites")."""
    assert operation == "put_object", f"{operation} of S3 is not simulated"
    key = parameters["Key"]
    if parameters.get("IfNoneMatch") == "*" and key in objects:
        return objects, Answer(error="PreconditionFailed")
    return objects.with_fields(**{key: parameters["Body"]}), _DONE
