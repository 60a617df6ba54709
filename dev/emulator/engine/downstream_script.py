"""The engine's side of `dev.emulator.downstream`: the script's next step for a call, and the record of all calls."""

import itertools
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self


class Script:
    """The steps of one file, read again after each change. Used by the event loop only."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._version: tuple[int, int] | None = None
        self._script: dict[str, Any] = {"steps": {}, "outage": None}
        self._calls: Counter[str] = Counter()
        self._failed_in_outage = 0
        self._after_outage: set[int] = set()
        self._is_recovered = False
        self._record = Record(file.with_suffix(".jsonl"))

    @classmethod
    def from_environment(cls) -> Self:
        """The script of the file that the environment names."""
        return cls(Path(os.environ["SLOTKEEPER_ENGINE_DOWNSTREAM"]))

    def begin(self, key: str) -> tuple[dict[str, Any], int] | None:
        """The step for this call of `key`, and the call's id in the record; None for a key without a script."""
        script = self._read()
        steps = script["steps"].get(key)
        if steps is None:
            return None
        if script["outage"] and time.time() >= script["outage"]["begins"] and not self._is_recovered:
            return self._without_step(key, script["outage"])
        self._calls[key] += 1
        number = self._calls[key]
        step = steps[number - 1] if number <= len(steps) else {"seconds": 0.0, "answer": "normal"}
        return step, self._record.begin(key, number)

    def _without_step(self, key: str, outage: dict[str, Any]) -> tuple[dict[str, Any], int]:
        call = self._record.begin(key, 0)
        if time.time() >= outage["ends"]:
            self._after_outage.add(call)
            return {"seconds": outage["seconds"], "answer": "normal"}, call
        answer = outage["answers"][self._failed_in_outage % len(outage["answers"])]
        self._failed_in_outage += 1
        return {"seconds": outage["seconds"], "answer": answer}, call

    def end(self, call: int, answer: str) -> None:
        """Record the end of a call."""
        self._record.end(call, answer)
        if call in self._after_outage and answer == "200":
            self._is_recovered = True

    def _read(self) -> dict[str, Any]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return self._script
        version = (status.st_mtime_ns, status.st_ino)  # dev.emulator.downstream replaces the file at each change
        if version != self._version:
            script, self._version = json.loads(self._file.read_text()), version
            self._is_recovered = self._is_recovered and script["outage"] == self._script["outage"]
            self._script = script
        return self._script


class Record:
    """JSON Lines: one line when a call begins, one when it ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ids = itertools.count(1)

    def begin(self, key: str, number: int) -> int:
        call = next(self._ids)
        self._write({"call": call, "key": key, "number": number, "began": time.time()})
        return call

    def end(self, call: int, answer: str) -> None:
        self._write({"call": call, "ended": time.time(), "answer": answer})

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
