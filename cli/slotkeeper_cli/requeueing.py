"""Redrives and discards requests that have failed or ended without a start: many at a time.

A redrive is one transaction for up to ten requests: it ends their rows, and adds those of the next attempts.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import Process
from slotkeeper.slots.returns import MAX_REDRIVES, NotRequeued, Requeued
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.bulk import MAX_NAMED, Chosen, NotRedrivable, Outcome, RequestChange, check_process, names_of
from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.formatting import count, iso, local_time
from slotkeeper_cli.parallel import THREADS
from slotkeeper_cli.requests import REDRIVABLE, WITHOUT_CONTENT, is_discarded, state_of

MAX_ATTEMPTS = 1_000_000  # request.schema.json
NOT_PUBLISHED = "its end is not published yet: try again in a minute"
# The function of endings publishes an end within seconds of it. Reads until it has, and seconds between them.
READS, BETWEEN = 20, 0.5
# A `start_before` as in a request, and in seconds since the epoch; None: the request states none.
Deadline = tuple[str, float] | None


class RowChange(RequestChange):
    """A change of rows of requests that have ended. It waits some seconds for ends that are not published yet."""

    batch_size = MAX_REDRIVES
    # Of ten requests for each audit line, which may have 256 KB (CloudWatch Logs quotas, "Event size").
    parts = 5 * THREADS

    def __init__(self, context: CommandContext, account: Account, rows: Sequence[RequestRow]) -> None:
        super().__init__()
        self._control, self._now = account.control, time.time()
        self.states: Counter[str] = Counter()
        for row in sorted(self._published(context, rows), key=lambda row: row.sent):
            one = Chosen(row.process, row.execution, row.request_id)
            try:
                self.check(row)
            except NotRedrivable as error:
                self.left.append((one, str(error)))
            else:
                self.chosen.append(one)
                self.states[state_of(row.state)] += 1

    @abstractmethod
    def check(self, row: RequestRow) -> None:
        """Raise NotRedrivable if the row cannot be changed."""

    @property
    def which(self) -> str:
        """The number of requests, their states, and their ids or how many each process has."""
        of = Counter(one.process for one in self.chosen)
        named = len(self.chosen) <= MAX_NAMED
        some = names_of(self.chosen) if named else ", ".join(f"{name}: {number:,}" for name, number in of.items())
        if len(self.states) > 1:
            states = ", ".join(f"{number:,} {state}" for state, number in self.states.items())
            return f"{count(len(self.chosen), 'request')}, {states} ({some})"
        return f"{count(len(self.chosen), f'{next(iter(self.states))} request')} ({some})"

    @property
    def others(self) -> str:
        """A sentence on the requests that cannot be changed; empty if all can be."""
        return f"{count(len(self.left), 'request is', 'requests are')} left: see --dry-run." if self.left else ""

    def _published(self, context: CommandContext, rows: Sequence[RequestRow]) -> list[RequestRow]:
        """The rows, read again until their ends are published, or the time for it has passed."""
        found = {(row.process, row.execution): row for row in rows}
        for number in range(READS):
            waiting = [name for name, row in found.items() if row.is_unpublished and row.state in REDRIVABLE]
            if not waiting:
                break
            if number == 0:
                longest = f"up to {READS * BETWEEN:.0f} s"
                context.out.note(f"Waiting {longest} until {count(len(waiting), 'end is', 'ends are')} published.")
            time.sleep(BETWEEN)
            read = self._control.row_search.named(waiting).rows
            found |= {(row.process, row.execution): row for row in read}
        return [*found.values()]


class Redriving(RowChange):
    """Queues requests again, each as its next attempt.

    Args:
        start_before: replaces that of a request which states one; empty: it stays, if it has not passed.
    """

    action, verb, unchanged = "failed redrive", "redriven", "it was redriven before"

    def __init__(
        self, context: CommandContext, account: Account, rows: Sequence[RequestRow], start_before: str
    ) -> None:
        self._start_before = start_before
        self._deadlines: dict[str, Deadline] = {}
        self._processes = account.by_name()
        super().__init__(context, account, rows)
        self._order = {one.execution: at for at, one in enumerate(self.chosen)}

    def check(self, row: RequestRow) -> None:
        """Raise NotRedrivable if the request cannot be queued again."""
        check_process(row.process, self._processes)
        self._deadlines[row.execution] = _deadline(row, self._start_before, self._now)

    def question(self) -> str:
        """It names what keeps the next attempts from starting."""
        if not self.chosen:
            return ""
        texts = [self.others]
        for name in dict.fromkeys(one.process for one in self.chosen):
            process = self._processes[name]
            if isinstance(process, Process) and (process.paused or process.slot_limit < 1):
                why = "is paused" if process.paused else "has the limit 0"
                texts.append(f"Warning: {name} {why}, so its requests wait.")
        deadline = ""
        if self._start_before:
            until = local_time(datetime.fromisoformat(self._start_before).timestamp())
            deadline = f", to start before {until} where it had a deadline"
        texts.append(f"Queue {self.which} again, each as its next attempt{deadline}?")
        return " ".join(filter(None, texts))

    def act_on(self, process: str, part: Sequence[Chosen]) -> Iterator[Outcome]:
        """Redrive some requests, in one transaction for each deadline."""
        # Parts are redriven at the same time. A millisecond between their places keeps them in order.
        now = self._now + self._order[part[0].execution] // self.batch_size / 1000
        by_deadline: dict[Deadline, list[Chosen]] = {}
        for one in part:
            by_deadline.setdefault(self._deadlines[one.execution], []).append(one)
        for deadline, ones in by_deadline.items():
            names = [one.execution for one in ones]
            outcomes = self._control.requeues.redrive(process, names, now, deadline)
            for one in ones:
                match outcomes[one.execution]:
                    case Requeued(execution=again):
                        self.notes[one.execution] = {"next": again}
                        yield one, ""
                    case NotRequeued(reason=reason, state=state):
                        yield one, self.unchanged if state == "REDRIVEN" else reason

    def follow_up(self, process: str, _: list[str], /) -> None:
        """Let the next attempts be dispatched."""
        self._control.doorbell.ring(Bell(process))


def _deadline(row: RequestRow, start_before: str, now: float) -> Deadline:
    """The deadline of the next attempt of a request. Raises NotRedrivable if it cannot be queued again."""
    if row.state not in REDRIVABLE:
        raise NotRedrivable(Redriving.unchanged if row.state == "REDRIVEN" else f"it is {state_of(row.state)}")
    if why := WITHOUT_CONTENT.get(row.code):
        raise NotRedrivable(why)
    if row.is_unpublished:
        raise NotRedrivable(NOT_PUBLISHED)
    if is_discarded(row):
        raise NotRedrivable("it was discarded: its content is removed")
    if row.attempt >= MAX_ATTEMPTS:
        raise NotRedrivable(f"it was attempt {row.attempt}, which is the maximum: submit it with a different id")
    if row.start_before is None:
        return None
    if start_before:
        return start_before, datetime.fromisoformat(start_before).timestamp()
    if row.state == "TOO_LATE" or now >= row.start_before:
        raise NotRedrivable("its start_before has passed: give a later one with --start-before")
    return iso(row.start_before), row.start_before


class Discarding(RowChange):
    """Removes failures from their list, with their contents."""

    action, verb = "failed discard", "discarded"

    def check(self, row: RequestRow) -> None:
        """Raise NotRedrivable if the request is in no list of failures."""
        if row.is_unpublished:
            raise NotRedrivable(NOT_PUBLISHED)
        if row.failed is None:
            raise NotRedrivable(f"it is {state_of(row.state)}, and in no list of failures")

    def question(self) -> str:
        """It states what is lost."""
        if not self.chosen:
            return ""
        return f"{self.others} Discard {self.which} with their contents, so that they can never be redriven?".strip()

    def act_on(self, process: str, part: Sequence[Chosen]) -> Iterator[Outcome]:
        """Discard some failures, each by one write."""
        for one in part:
            is_done = self._control.requeues.discard(process, one.execution)
            yield one, "" if is_done else "it has changed meanwhile"

    def follow_up(self, process: str, _: list[str], /) -> None:
        """Nothing: a discarded request is in no queue."""
