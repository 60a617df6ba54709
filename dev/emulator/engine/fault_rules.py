"""The engine's side of `dev.emulator.faults`: the next rule for a call, and a record of the rules that acted."""

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self


class Rules:
    """The rules of one file, read again after each change."""

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
        """The rules of the file that the environment names."""
        return cls(Path(os.environ["SLOTKEEPER_ENGINE_FAULTS"]))

    def take(self, execution: str, state: str) -> dict[str, Any] | None:
        """The first rule for this call that has acted less than `times`. Counts it as acting."""
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
        version = (status.st_mtime_ns, status.st_ino)  # dev.emulator.faults replaces the file at each change
        if version != self._seen:
            self._rules, self._seen = json.loads(self._file.read_text()), version
        return self._rules
