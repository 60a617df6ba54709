"""A fragile downstream: S3's GetObject of named keys follows a script, and every call of them is recorded.

It acts inside an engine that was started with `downstream=True`. Nothing that is deployed knows of it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

SCRIPT, RECORD = "downstream.json", "downstream.jsonl"
# `normal`: whatever S3 has to say. `slow_down`: 503 SlowDown. `error`: 500 InternalError. `drop`: the connection ends
# without an answer.
Answer = Literal["normal", "slow_down", "error", "drop"]


@dataclass(frozen=True)
class Step:
    """What one call meets: `seconds` of waiting, then the answer. `retry_after` (seconds) becomes a header of a 503."""

    seconds: float = 0.0
    answer: Answer = "normal"
    retry_after: int | None = None


@dataclass(frozen=True)
class Call:
    """One GetObject, by the engine's clock (epoch seconds). `number` counts the calls of this key, from 1.

    `ended` and `answer` are None while it lasts. The answer is an HTTP status, `dropped`, or `gone`: the caller has
    closed its connection before there was an answer. A caller counts until then, since a caller is whom S3 would still
    answer; that is known at once, from the end of its side of the connection, also if its process is killed.
    """

    key: str
    number: int
    began: float
    ended: float | None = None
    answer: str | None = None


class Downstream:
    """The script and the record of one engine."""

    def __init__(self, state_dir: Path) -> None:
        self._script = state_dir / SCRIPT
        self._record = state_dir / RECORD

    def follow(self, script: Mapping[str, Sequence[Step]]) -> None:
        """Key -> what its first, second, ... GetObject meets. Later ones are answered normally and at once.

        The script replaces the one before; calls of a key go on being counted from its very first one. Only the keys in
        the script are recorded, so an unhindered key that matters has an empty list.
        """
        content = {key: [asdict(step) for step in steps] for key, steps in script.items()}
        temporary = self._script.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        os.replace(temporary, self._script)  # the engine never reads half a file

    def calls(self) -> list[Call]:
        """Every call so far, by its begin."""
        lines = self._record.read_text().split("\n")[:-1] if self._record.exists() else []  # the last may be half
        return merge(json.loads(line) for line in lines)


def merge(lines: Any) -> list[Call]:
    """The record has a line for a call's begin and one for its end, which bears the same `call`."""
    fields: dict[int, dict[str, Any]] = {}
    for line in lines:
        call = line.pop("call")
        fields.setdefault(call, {}).update(line)
    return [Call(**each) for each in fields.values()]
