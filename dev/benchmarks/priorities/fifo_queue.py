"""A FIFO queue with message groups in virtual time.

SQS delivers no further message of a group while one is in flight (SQS guide, "FIFO queue delivery logic"). It rejects a
receipt handle whose message was received again, deleted, or is visible (API Reference, ChangeMessageVisibility).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from botocore.exceptions import ClientError
from greenlet import getcurrent, greenlet

from dev.benchmarks.outage.virtual_time import VirtualTime
from slotkeeper.slots.request import Delivery


@dataclass
class _Message:
    """`visible_at`, `sent_at`: seconds since the epoch."""

    number: int
    body: str
    group: str
    sent_at: float
    visible_at: float
    receives: int = 0

    @property
    def handle(self) -> str:
        """Of the latest receive."""
        return f"{self.number}#{self.receives}"

    @property
    def delivery(self) -> Delivery:
        sequence = str(self.number)
        return Delivery(sequence, self.body, self.group, self.handle, sequence, self.receives, self.sent_at)


class FifoQueue:
    """The queue, and in `dead` the bodies of its dead-letter messages.

    Args:
        visibility: the visibility timeout, seconds.
        wait: waits for the time of a call.
    """

    def __init__(self, time: VirtualTime, visibility: float, wait: Callable[[], None] = lambda: None) -> None:
        self.dead: list[str] = []
        self.receives = 0
        self._time = time
        self._visibility = visibility
        self._wait = wait
        self._sent = 0
        self._messages: dict[int, _Message] = {}
        self._groups: defaultdict[str, deque[_Message]] = defaultdict(deque)
        self._due: list[tuple[float, int]] = []  # (visible_at, number) of heads; outdated pairs are ignored
        self._idle: deque[greenlet] = deque()

    # The operations that the product calls.

    def send_message(self, *, MessageBody: str, **_: Any) -> None:
        """Send a dead-letter message."""
        self._wait()
        self.dead.append(MessageBody)

    def change_message_visibility(self, *, ReceiptHandle: str, VisibilityTimeout: int, **_: Any) -> None:
        self._wait()
        message = self._messages.get(int(ReceiptHandle.partition("#")[0]))
        if message is None or message.handle != ReceiptHandle or message.visible_at <= self._time.now:
            answer: Any = {"Error": {"Code": "InvalidParameterValue", "Message": "the receipt handle is outdated"}}
            raise ClientError(answer, "ChangeMessageVisibility")
        message.visible_at = self._time.now + VisibilityTimeout
        self._show(message)

    # The producer and the event source.

    def send(self, body: str, group: str) -> None:
        """Send a request without the time of a call."""
        self._sent += 1
        message = _Message(self._sent, body, group, self._time.now, self._time.now)
        self._messages[message.number] = message
        self._groups[group].append(message)
        if self._groups[group][0] is message:
            self._show(message)

    def receive(self) -> Delivery:
        """Wait for a message and receive it."""
        while (delivery := self._next()) is None:
            self._idle.append(getcurrent())
            self._time.suspend()
        return delivery

    def delete(self, delivery: Delivery) -> None:
        """Delete a received message, the head of its group. One that was received again since then stays."""
        group = self._groups[delivery.group_id]
        if group and group[0].handle == delivery.receipt_handle:
            del self._messages[group.popleft().number]
            if group:
                self._show(group[0])

    def _next(self) -> Delivery | None:
        now = self._time.now
        while self._due and self._due[0][0] <= now:
            visible_at, number = heappop(self._due)
            message = self._messages.get(number)
            if message and message.visible_at == visible_at:
                self.receives += 1
                message.receives += 1
                message.visible_at = now + self._visibility
                self._show(message)
                return message.delivery
        return None

    def _show(self, head: _Message) -> None:
        # A message that was sent before it became the head has been visible for some time.
        heappush(self._due, (head.visible_at, head.number))
        self._time.at(head.visible_at, self._wake)

    def _wake(self) -> None:
        if self._idle and self._due and self._due[0][0] <= self._time.now:
            self._time.wake(self._idle.popleft())
