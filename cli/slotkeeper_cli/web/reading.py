"""What the pages show, read once for all open pages: each reading is kept for some seconds, and says when it was made.

The calls of a refresh depend on what exists now, never on the length of the history:

    overview     Scan of SlotTable (a call per MB), a page of each process's queue, Scan of DownstreamTable, a call per
                 queue, DescribeAlarms per 100 alarms
    process      that of `slotkeeper status PROCESS`: the item, the queues, running executions, the target's newest
                 work; and the process's queue
    request      that of `slotkeeper explain`
    retries      Scan of DownstreamTable; the waiting retries only on request, since they are a scan of the ledger
    token        one GetItem

    failures     a call per MB of the index of failures

Dead letters and the audit are read only when an operator asks for them: reading a dead-letter queue hides its messages
from others, and an audit makes many calls.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from slotkeeper.retry.downstream.downstreams import MalformedHealth
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.history_reader import Window, read_history
from slotkeeper_cli.commands.token import read_token
from slotkeeper_cli.dead_letters import DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.explanation import explain
from slotkeeper_cli.failures import FailureGroup, Failures, Filters, grouped
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.process_queue import ProcessQueue, read_queue
from slotkeeper_cli.retries import DownstreamControl, details, read_downstreams
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, all_queue_attributes, message_counts
from slotkeeper_cli.status import status
from slotkeeper_cli.unread import Search

# Seconds between two refreshes of a page, and for which a reading serves every page.
REFRESH = 5.0
# Seconds for which a history is kept, the longest of all.
HISTORY_KEPT = 60.0
# Seconds between two readings of a process after which the time between them is shown as not seen.
LONGEST_GAP = 6 * REFRESH
# Points of a process's slots that are kept: an hour, if each refresh brings a change.
KEPT = 720
MAX_DEAD_LETTERS = 1000
MAX_QUEUED = 500  # requests of a queue that a page shows


@dataclass(frozen=True)
class Snapshot[Data]:
    """Data, and when it was read, in seconds since the epoch."""

    data: Data
    at: float


@dataclass(frozen=True)
class Overview:
    """Every process, and what is out of order. What could not be read is in `not_read`, as texts."""

    processes: list[Process]
    malformed: list[MalformedProcess]
    waiting: dict[str, ProcessQueue]
    queues: dict[str, dict[str, int]]
    alarms: list[dict[str, Any]]
    downstreams: dict[str, Any]
    not_read: list[str]


@dataclass(frozen=True)
class Seen:
    """The slots in use and the limit that a reading saw; None: no page was open from then on."""

    at: float
    in_use: int | None = None
    limit: int | None = None


@dataclass
class Timeline:
    """The slots in use of a process as they were seen since the console was started: instants at which they changed."""

    points: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT))
    last_at: float = 0.0

    def add(self, at: float, in_use: int, limit: int) -> None:
        """Note the slots in use and the limit. What happened between two readings that are far apart is not known."""
        if self.points and at - self.last_at > LONGEST_GAP:
            self.points.append(Seen(self.last_at))
        self.last_at = at
        if not self.points or (self.points[-1].in_use, self.points[-1].limit) != (in_use, limit):
            self.points.append(Seen(at, in_use, limit))

    def until_now(self) -> list[Seen]:
        """The points, and the last one again at the time of the last reading."""
        return [*self.points, replace(self.points[-1], at=self.last_at)] if self.points else []


class StackReader:
    """Reads a stack for the pages. Each method returns what was read at most REFRESH seconds ago, or reads it.

    Errors of AWS pass through; the page states them, and keeps what it has under its own time.
    """

    def __init__(self, stack: StackConnection) -> None:
        self.stack = stack
        self._control = SlotControl(stack)
        self._account = Account(stack, keeps=0)
        self._kept: dict[tuple[Any, ...], Snapshot[Any]] = {}
        self._locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()
        self.timelines: dict[str, Timeline] = {}

    def forget(self) -> None:
        """Read everything again, since an action may have changed it."""
        self._kept.clear()

    def _reading[Data](self, key: tuple[Any, ...], read: Callable[[], Data], keep: float = REFRESH) -> Snapshot[Data]:
        """The kept reading of this key if it is young enough. Pages that ask at the same time share one reading."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            kept = self._kept.get(key)
            # A little less, so that a page's own timer, which is not exact, always brings a new reading.
            if kept is None or time.time() - kept.at > keep * 0.9:
                at = time.time()
                kept = self._kept[key] = Snapshot(read(), at)
                # A console may be open for days, and a history is large.
                for other, old in [*self._kept.items()]:
                    if at - old.at > HISTORY_KEPT:
                        self._kept.pop(other, None)
            return kept

    def overview(self) -> Snapshot[Overview]:
        """Every process, the queues, the alarms and the downstreams."""
        return self._reading(("overview",), self._read_overview)

    def _read_overview(self) -> Overview:
        search = Search()
        processes, malformed = self._control.read_all()
        now = time.time()
        for each in processes:
            self.timelines.setdefault(each.name, Timeline()).add(now, each.slots_in_use, each.slot_limit)

        def waiting() -> dict[str, ProcessQueue]:
            read = in_parallel(lambda one: read_queue(self._control.rows, one, now, max_pages=1), processes)
            return {each.name: each for each in read}

        queues: dict[str, dict[str, str]] = search.try_read("queues", lambda: all_queue_attributes(self.stack), {})
        found: dict[str, ProcessQueue] = search.try_read("RequestTable", waiting, {})
        alarms: list[dict[str, Any]] = search.try_read("alarms", self._account.alarms, [])
        downstreams: dict[str, Any] = search.try_read("downstreams", lambda: read_downstreams(self.stack), {})
        return Overview(
            processes,
            malformed,
            found,
            {queue: message_counts(attributes) for queue, attributes in queues.items()},
            alarms,
            downstreams,
            [f"{each.source}: {each.why}" for each in search.not_read],
        )

    def process(self, name: str) -> Snapshot[dict[str, Any]]:
        """A process as `slotkeeper status PROCESS --json` shows it, with its queue as `requests`.

        Raises NotFound, CommandFailed if malformed.
        """

        def read() -> dict[str, Any]:
            data, now = status(Account(self.stack), name), time.time()
            (shown,) = data["processes"]
            self.timelines.setdefault(name, Timeline()).add(now, shown["slots_in_use"], shown["slot_limit"])
            requests = read_queue(self._control.rows, self._control.process(name), now).requests
            return data | {"requests": [each.as_dict(now) for each in requests[:MAX_QUEUED]]}

        return self._reading(("process", name), read)

    def request(self, request_id: str, process: str | None) -> Snapshot[dict[str, Any]]:
        """A request as `slotkeeper explain ID --json` shows it."""
        return self._reading(
            ("request", request_id, process), lambda: explain(Account(self.stack), request_id, process), 3 * REFRESH
        )

    def failures(self) -> Snapshot[tuple[list[FailureGroup], list[str]]]:
        """The failures as `slotkeeper failed list` groups them, and what could not be read."""

        def read() -> tuple[list[FailureGroup], list[str]]:
            failures = Failures(Account(self.stack), Filters())
            return grouped(failures.read()), [each.text for each in failures.search.not_read]

        return self._reading(("failures",), read, 3 * REFRESH)

    def dead_letters(self) -> Snapshot[list[dict[str, Any]]]:
        """The messages of each dead-letter queue, at most MAX_DEAD_LETTERS of each, and what could not be read."""

        def read(queue: DeadLetterQueueName) -> dict[str, Any]:
            reader = DeadLetterQueueReader(self.stack, queue)
            found = reader.peek(MAX_DEAD_LETTERS)
            messages = [each.summary() for each in found.messages]
            return {"queue": queue, "messages": messages, "unread": found.unread and found.unread.text}

        deployed = [each for each in DeadLetterQueueName if each.is_deployed(self.stack)]
        return self._reading(("dead letters",), lambda: [read(each) for each in deployed])

    def downstreams(self) -> Snapshot[list[dict[str, Any]]]:
        """The details of each downstream; of a malformed one its name and what is wrong."""

        def read() -> list[dict[str, Any]]:
            control, now = DownstreamControl(self.stack), time.time()
            return [
                {"downstream": name, "state": "malformed", "why": str(health)}
                if isinstance(health, MalformedHealth)
                else details(name, health, control.settings(name), now)
                for name, health in sorted(control.healths.items())
                if name
            ]

        return self._reading(("downstreams",), read)

    def token(self) -> Snapshot[dict[str, Any]]:
        """The state of the shared token, never the token itself."""
        return self._reading(("token",), lambda: read_token(self.stack))

    def audit(self, name: str, hours: float) -> Snapshot[dict[str, Any]]:
        """The checks, figures and history of a process for the last hours."""

        def read() -> dict[str, Any]:
            now = time.time()
            history = read_history(Account(self.stack), Window(now - hours * 3600, now), name)
            return {
                "checks": [each.as_dict() for each in judge(history)],
                "figures": figures(history).get(name),
                "history": history,
                "not_read": [each.text for each in history.not_read],
            }

        return self._reading(("audit", name, hours), read, HISTORY_KEPT)


def alarms_ringing(alarms: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The alarms that are in ALARM, by name."""
    ringing = (each for each in alarms if each["StateValue"] == "ALARM")
    return sorted(ringing, key=lambda each: str(each["LogicalId"]))
