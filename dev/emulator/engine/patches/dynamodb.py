"""DynamoDB: atomic writes of separate values, and a journal of them."""

import copy
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dev.emulator.engine.emulator import dynamodb, locked, patch, replace, wrap

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


@patch
def dynamodb_writes() -> None:
    """Every operation on an item is atomic.

    AWS: "Amazon DynamoDB Developer Guide: Condition and filter expressions" and "Working with items and attributes":
    a conditional write checks and writes in one step, also with concurrent writers.
    MiniStack relies on its event loop for that, but a Step Functions task calls the same functions from its
    execution's thread, outside the loop: two conditional updates can then both see the old item.
    Shown by the row f14_atomic_updates of tests/facts.
    """
    for name in OPERATIONS:
        replace(dynamodb, name, partial(locked, lock))


@patch
def dynamodb_values() -> None:
    """Two attributes that one update sets to one value are two values.

    AWS: "Amazon DynamoDB Developer Guide: Using update expressions in DynamoDB", SET: each action assigns a value to
    its path. A later change of one path is a change of no other.
    MiniStack stores the value of a placeholder itself. Of two map entries that an update sets to one placeholder, a
    later update of one changes both.
    Shown by the row one_placeholder_twice of tests/facts.
    """
    wrap(dynamodb, "_set_at_path", _set_at_path)


def _set_at_path(original: Callable[..., None], item: Any, path: list[Any], value: Any) -> None:
    original(item, path, copy.deepcopy(value))


@patch
def dynamodb_journal() -> None:
    """Every change of an item is in a file that outlives the engine, in order and with its time.

    AWS: "Amazon DynamoDB Developer Guide: Change data capture for DynamoDB Streams": one record an item-level change,
    in the order of the changes, with the item as it was afterwards.
    MiniStack's streams have whole seconds, and are lost when it ends. This file contains a table's state at every
    instant of a run with restarts: JSON Lines of `at` (seconds), `table`, `item`.
    """
    wrap(dynamodb, "_emit_stream_event", partial(_emit, Path(os.environ["SLOTKEEPER_ENGINE_JOURNAL"])))


def _emit(file: Path, original: Callable[..., None], table: str, kind: str, old: Any, new: Any, *more: Any) -> None:
    """Called inside the write's lock, so in the order of the changes."""
    original(table, kind, old, new, *more)
    if new is not None and new != old:
        with file.open("a") as journal:
            journal.write(json.dumps({"at": round(time.time(), 4), "table": table, "item": new}) + "\n")
