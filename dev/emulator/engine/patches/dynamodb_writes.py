"""Every DynamoDB operation on an item is atomic.

AWS: "Amazon DynamoDB Developer Guide: Condition and filter expressions" and "Working with items and attributes":
a conditional write checks and writes in one step, also with concurrent writers.
MiniStack relies on its event loop for that, but a Step Functions task calls the same functions from its execution's
thread, outside the loop: two conditional updates can then both see the old item.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import dynamodb, replace

OPERATIONS = (
    "_put_item",
    "_update_item",
    "_delete_item",
    "_get_item",
    "_query",
    "_scan",
    "_batch_get_item",
    "_batch_write_item",
    "_transact_get_items",
    "_transact_write_items",
    "_execute_statement",
    "_batch_execute_statement",
    "_execute_transaction",
)

lock = threading.RLock()  # reentrant: the batch operations call the single ones


def apply() -> None:
    """Run every data operation under one lock."""
    for name in OPERATIONS:
        replace(dynamodb, name, _locked)


def _locked(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def run(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return operation(*args, **kwargs)

    return run
