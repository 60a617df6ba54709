"""Every change of an item, in order and with its time, in a file that outlives the engine. Applied with a file only.

AWS: "Amazon DynamoDB Developer Guide: Change data capture for DynamoDB Streams": one record an item-level change, in
the order of the changes, with the item as it was afterwards.
MiniStack's streams have whole seconds, and are lost when it ends. This file contains a table's state at every instant
of a run with restarts: JSON Lines of `at` (seconds), `table`, `item`.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.emulator.engine.emulator import dynamodb, replace


def apply() -> None:
    """Write a line for each stream record: inside the write's lock, so in the order of the changes."""
    file = Path(os.environ["SLOTKEEPER_ENGINE_JOURNAL"])
    replace(dynamodb, "_emit_stream_event", lambda original: _emit(original, file))


def _emit(original: Callable[..., None], file: Path) -> Callable[..., None]:
    def emit(table: str, kind: str, old: Any, new: Any, *args: Any, **kwargs: Any) -> None:
        original(table, kind, old, new, *args, **kwargs)
        if new is not None and new != old:
            with file.open("a") as journal:
                journal.write(json.dumps({"at": round(time.time(), 4), "table": table, "item": new}) + "\n")

    return emit
