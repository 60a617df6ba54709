"""A downstream with scripted failures: GetObject calls of named S3 keys follow a script and are recorded.

It acts inside an engine that was started with `downstream=True`. The deployed code does not change.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

SCRIPT, RECORD = "downstream.json", "downstream.jsonl"
# `normal`: S3's own answer. `slow_down`: 503 SlowDown. `unavailable`: 503 ServiceUnavailable. `error`: 500
# InternalError. `drop`: the connection is closed without an answer.
Answer = Literal["normal", "slow_down", "unavailable", "error", "drop"]


@dataclass(frozen=True)
class Step:
    """The outcome of one call: a delay in seconds, then the answer. `retry_after` (seconds) is a header of a 503."""

    seconds: float = 0.0
    answer: Answer = "normal"
    retry_after: int | None = None


@dataclass(frozen=True)
class Outage:
    """From `begins` to `ends` (epoch seconds) each call of a key in the script fails, and uses no step of its key.

    Calls after it use no step either, and are answered normally, until the first one has been answered with its object.
    So the time from the end to the first success depends on the caller alone, and not on the script.

    Args:
        seconds: the delay of each answer.
        answers: given in turn.
    """

    begins: float
    ends: float
    seconds: float = 0.5
    answers: tuple[Answer, ...] = ("unavailable", "drop")


@dataclass(frozen=True)
class Call:
    """One GetObject, by the engine's clock (epoch seconds).

    `number` counts the calls of this key that used a step, from 1; it is 0 for a call that used none (see Outage).
    `ended` and `answer` are None while the call lasts. The answer is an HTTP status, `dropped`, or `gone`: the caller
    closed its connection before the answer. The engine notices that immediately, even if the caller's process is
    killed, because its side of the connection ends.
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

    def follow(self, script: Mapping[str, Sequence[Step]], outage: Outage | None = None) -> None:
        """Replace the script: key -> outcomes of its first, second, ... GetObject. Later calls are answered normally.

        The count of a key's calls continues from its very first call. Only calls of keys in the script are recorded; a
        key with an empty list is recorded and answered normally.
        """
        steps = {key: [asdict(step) for step in steps] for key, steps in script.items()}
        content = {"steps": steps, "outage": outage and asdict(outage)}
        temporary = self._script.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        os.replace(temporary, self._script)  # the engine never reads half a file

    def calls(self) -> list[Call]:
        """Every call so far, in the order of their beginnings."""
        lines = self._record.read_text().split("\n")[:-1] if self._record.exists() else []  # the last may be half
        return merge(json.loads(line) for line in lines)


def merge(lines: Any) -> list[Call]:
    """Combine the line of a call's beginning with the line of its end, which has the same `call`."""
    fields: dict[int, dict[str, Any]] = {}
    for line in lines:
        call = line.pop("call")
        fields.setdefault(call, {}).update(line)
    return [Call(**each) for each in fields.values()]
