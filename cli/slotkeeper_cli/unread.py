"""The sources that a command could not read: an absence is stated only of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.rows import Listed
from slotkeeper_cli.errors import failure_text
from slotkeeper_cli.formatting import count


@dataclass(frozen=True)
class UnreadSource:
    """Something of a stack that could not be read.

    Args:
        source: a queue, table or log of the template, or other facts.
        why: the reason, and what to do.
        messages: how many messages, approximately; None if it is not a number of messages.
    """

    source: str
    why: str
    messages: int | None = None

    @property
    def text(self) -> str:
        """It on one line."""
        messages = "" if self.messages is None else f"About {count(self.messages, 'message')} of "
        return f"{messages}{self.source} could not be read: {self.why}"

    def as_dict(self) -> dict[str, Any]:
        """It as JSON shows it."""
        return {"source": self.source, "messages": self.messages, "why": self.why}


@dataclass
class Search:
    """What one answer could not read."""

    not_read: list[UnreadSource] = field(default_factory=list)

    def try_read[Result](self, source: str, call: Callable[[], Result], otherwise: Result) -> Result:
        """The result of a call, or `otherwise` if AWS refuses it, as for a missing permission."""
        try:
            return call()
        except ClientError as error:
            self.note_unread(source, failure_text(error))
            return otherwise

    def rows[Row](self, listed: Listed[Row], what: str) -> list[Row]:
        """The rows that a bounded read of RequestTable has found. The others are noted."""
        if listed.is_cut:
            self.note_unread("RequestTable", f"there are more than {len(listed.rows):,} {what}")
        self.note_malformed_rows(listed.malformed)
        return listed.rows

    def note_malformed_rows(self, malformed: Sequence[str]) -> None:
        """Record the rows of RequestTable that are malformed, in one text with the first."""
        if malformed:
            more = f", and {len(malformed) - 1:,} more" * (len(malformed) > 1)
            why = f"{count(len(malformed), 'row is', 'rows are')} malformed: {malformed[0]}{more}"
            self.note_unread("RequestTable", why)

    def note_unread(self, source: str, why: str) -> None:
        """Record a source that could not be read."""
        self.not_read.append(UnreadSource(source, why))

    def note_malformed(self, error: MalformedProcess) -> None:
        """Record a process whose item is malformed."""
        why = f"the item of process {error.process} is malformed ({error}), so what holds its slots is not known"
        self.note_unread("SlotTable", f"{why}: {next_step('process repair', error.process)}")

    @property
    def limits(self) -> str:
        """The words after an absence, after a space; empty if all could be read."""
        return " in what could be read" if self.not_read else ""

    def missing(self, source: str) -> bool:
        """Whether something of a source could not be read."""
        return any(each.source == source for each in self.not_read)


def print_not_read(console: Console, not_read: Iterable[dict[str, Any]]) -> None:
    """Print what could not be read, from `UnreadSource.as_dict`."""
    for one in not_read:
        messages = "" if one["messages"] is None else f"about {count(one['messages'], 'message')} of "
        console.print(f"Not read: {messages}{one['source']}: {one['why']}", style="yellow")
