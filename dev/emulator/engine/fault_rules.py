"""The engine's side of the fault file: which rule acts next, and a note of every one that did."""

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self


class Rules:
    """The rules of one file, read again whenever it has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fired_file = file.with_name(file.name + ".fired")
        self._fired_file.unlink(missing_ok=True)
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._rules: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    @classmethod
    def from_environment(cls) -> Self:
        """The file that the engine was started with."""
        return cls(Path(os.environ["SLOTKEEPER_ENGINE_FAULTS"]))

    def take(self, execution: str, state: str) -> dict[str, Any] | None:
        """The first rule for this place that has not acted often enough; it counts as acting now."""
        with self._lock:
            for rule in self._read():
                if rule["execution"] not in ("*", execution) or rule["state"] != state:
                    continue
                if rule["times"] and self._counts[rule["id"]] >= rule["times"]:
                    continue
                self._counts[rule["id"]] += 1
                with self._fired_file.open("a") as fired:
                    fired.write(f"{rule['id']} {execution}\n")
                return rule
        return None

    def holds(self, rule_id: str) -> bool:
        """Whether the rule is still in the file."""
        with self._lock:
            return any(rule["id"] == rule_id for rule in self._read())

    def _read(self) -> list[dict[str, Any]]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            self._seen, self._rules = None, []
            return self._rules
        version = (status.st_mtime_ns, status.st_ino)  # the helper replaces the file, so it is a new one each time
        if version != self._seen:
            self._rules, self._seen = json.loads(self._file.read_text()), version
        return self._rules
