"""What is counted: calls, units, states, lines of log; and the time of our own code, without that of the simulation."""

from __future__ import annotations

import time
from collections import Counter, defaultdict


class Meter:
    """Counts for whoever works: `owner` is a request, or JANITOR.

    `cpu` is in nanoseconds of the process's CPU, between `go` and `halt`: the functions' own code with what it imports,
    but not what answers its calls. botocore is not in it, since there is none here.
    """

    JANITOR = "the janitor"

    def __init__(self) -> None:
        self.owner = ""
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.cpu: Counter[str] = Counter()
        self._who = ""
        self._since = 0

    def count(self, what: str, number: int = 1) -> None:
        self.counts[self.owner][what] += number

    def go(self, who: str) -> None:
        """From here on it is the code of this function that runs."""
        self._who, self._since = who, time.process_time_ns()

    def halt(self) -> str:
        """From here on it is not; whose it was, for `go`, and empty if nobody's."""
        who, self._who = self._who, ""
        if who:
            self.cpu[who] += time.process_time_ns() - self._since
        return who


class Output:
    """Standard output of the functions, which CloudWatch would take in: lines and bytes, and nothing kept."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def write(self, text: str) -> int:
        self._meter.count("log lines", text.count("\n"))
        self._meter.count("log bytes", len(text))
        return len(text)

    def flush(self) -> None:
        pass
