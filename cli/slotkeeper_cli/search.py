"""The places that a search has read, and what it could not read there: an absence is stated only of what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.slots.process import MalformedProcess
from slotkeeper_cli.conditions import Condition, stopped_event_source
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader, Read
from slotkeeper_cli.errors import failure_text
from slotkeeper_cli.formatting import count
from slotkeeper_cli.stack_connection import StackConnection, UnreadSource, event_source_mappings, in_parallel

# The messages that are read of each dead-letter queue.
_MAX_DEAD_LETTERS = 1000


@dataclass
class Search:
    """What one command has read."""

    searched: list[str] = field(default_factory=list)
    not_read: list[UnreadSource] = field(default_factory=list)

    def try_read[Result](self, source: str, call: Callable[[], Result], otherwise: Result) -> Result:
        """The result of a call, or `otherwise` if AWS refuses it, as for a missing permission."""
        try:
            result = call()
        except ClientError as error:
            self.note_unread(source, failure_text(error))
            return otherwise
        if source not in self.searched:
            self.searched.append(source)
        return result

    def note_unread(self, source: str, why: str) -> None:
        """Record a source that could not be read."""
        self.not_read.append(UnreadSource(source, why))

    def note_malformed(self, error: MalformedProcess) -> None:
        """Record a process whose item is malformed."""
        why = f"the item of process {error.process} is malformed ({error}), so what holds its slots is not known"
        self.note_unread("SlotTable", f"{why}: {next_step('process repair', error.process)}")

    def missing(self, source: str) -> bool:
        """Whether something of a source could not be read."""
        return any(each.source == source for each in self.not_read)


def print_not_read(console: Console, not_read: Iterable[dict[str, Any]]) -> None:
    """Print what could not be read, from `UnreadSource.as_dict`."""
    for one in not_read:
        messages = "" if one["messages"] is None else f"about {count(one['messages'], 'message')} of "
        console.print(f"Not read: {messages}{one['source']}: {one['why']}", style="yellow")


def read_event_source(stack: StackConnection, search: Search, queue: str, arn: str) -> list[Condition]:
    """The condition that a function receives the messages of a queue, if it fails; empty if it could not be read."""
    mappings = search.try_read(f"event source of {queue}", lambda: event_source_mappings(stack, arn), None)
    return [] if mappings is None else stopped_event_source(queue, mappings)


def read_dead_letters(
    stack: StackConnection, search: Search, queues: Sequence[DeadLetterQueueName]
) -> list[DeadLetterMessage]:
    """The messages of some dead-letter queues, at most 1,000 of each. The others are recorded in `search`."""

    def read_queue(queue: DeadLetterQueueName) -> tuple[Search, Read]:
        own, reader = Search(), DeadLetterQueueReader(stack, queue)
        return own, own.try_read(queue.full_name, lambda: reader.peek(_MAX_DEAD_LETTERS), Read([], None))

    messages = []
    for own, read in in_parallel(read_queue, queues):
        search.searched += own.searched
        search.not_read += own.not_read
        if read.unread is not None:
            search.not_read.append(read.unread)
        messages += read.messages
    return messages
