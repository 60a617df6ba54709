"""The next message to send, and the invalidations of the token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dev.emulator.chat_service import Request

Invalidate = Callable[[Callable[[Sequence[Request]], bool]], float | None]


QUESTIONS = (
    "Where is my order?",
    "Can I change the delivery address?",
    "Which of your shops is open on Sunday?",
    "How do I return a pair of shoes?",
    "Do you repair what you sell?",
    "Is there an express delivery?",
    "Is the blue one still in stock?",
)


@dataclass(frozen=True)
class Message:
    """One message. Each has its own text, by which the API's log identifies it."""

    number: int  # from 1

    @property
    def message_id(self) -> str:
        return f"m{self.number:05d}"

    @property
    def text(self) -> str:
        return f"{QUESTIONS[self.number % len(QUESTIONS)]} (customer {self.number})"

    def body(self, sender: int) -> bytes:
        """The request. All messages of a sender are one conversation."""
        content = {"message_id": self.message_id, "text": self.text, "conversation": f"sender-{sender}"}
        return json.dumps(content).encode()


@dataclass(frozen=True)
class Invalidation:
    """The live token was invalidated at `at` (epoch seconds)."""

    at: float
    token: int


@dataclass(frozen=True)
class FeedState:
    """The number of messages sent, ended (answered or given up) and answered, and of invalidations."""

    sent: int
    ended: int
    answered: int
    invalidations: int


def recovered(log: Sequence[Request], invalidated: int, in_flight: Collection[str]) -> bool:
    """Whether a token after `invalidated` is in use, and no message that received a 401 is in flight.

    A message that a second invalidation affects may be refused, since the protocol treats a 401 for a newer token as an
    error of the request. This run does not test that rule.
    """
    served = any(r.status == 200 and r.text is not None and (r.token or 0) > invalidated for r in log)
    return served and not any(r.status == 401 and r.text in in_flight for r in log)


class MessageFeed:
    """Hands the messages to the senders, and invalidates the token at even steps of progress. Thread-safe.

    An invalidation happens when the end of a message makes it due and the token has recovered from the one before. So
    that many messages meet each invalidation, at most half a step or half of the senders' messages are sent before it.

    Args:
        invalidate: ChatService.invalidate.
    """

    def __init__(self, messages: Sequence[Message], senders: int, invalidations: int, invalidate: Invalidate) -> None:
        self._messages = messages
        self._wanted = invalidations
        self._step = len(messages) / (invalidations + 1)
        self._ahead = min(senders, self._step) / 2
        self._invalidate_token = invalidate
        self._changed = threading.Condition()
        self._in_flight: set[str] = set()
        self._sent = self._ended = self._answered = 0
        self._gave_up = False
        self._stopped = False
        self.invalidations: list[Invalidation] = []

    def next(self) -> Message | None:
        """Wait until a message may be sent, and return it. None if there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._sent == len(self._messages) or self._may_send())
            if self._stopped or self._sent == len(self._messages):
                return None
            message = self._messages[self._sent]
            self._sent += 1
            self._in_flight.add(message.text)
            return message

    def end(self, message: Message, *, answered: bool) -> None:
        """Record the end of a message."""
        with self._changed:
            self._in_flight.remove(message.text)
            self._ended += 1
            self._answered += answered
            if self._is_due():
                self._invalidate()
            self._changed.notify_all()

    def stop(self) -> None:
        """Send no more messages."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def state(self) -> FeedState:
        with self._changed:
            return FeedState(self._sent, self._ended, self._answered, len(self.invalidations))

    def _may_send(self) -> bool:
        made = len(self.invalidations)
        if made == self._wanted or self._gave_up:
            return True
        # One message remains for each remaining invalidation: it must meet the invalid token.
        return self._sent < min(self._step * (made + 1) + self._ahead, len(self._messages) - (self._wanted - made))

    def _is_due(self) -> bool:
        made = len(self.invalidations)
        return made < self._wanted and not self._gave_up and self._ended >= self._step * (made + 1)

    def _invalidate(self) -> None:
        invalidated = self.invalidations[-1].token if self.invalidations else 0
        tokens: list[int] = []

        def when(log: Sequence[Request]) -> bool:
            tokens.extend(r.token for r in log if r.token is not None)
            return recovered(log, invalidated, self._in_flight)

        at = self._invalidate_token(when)
        if at is not None:
            self.invalidations.append(Invalidation(at, max(tokens)))
        elif not self._in_flight and not self._may_send():
            self._gave_up = True  # the token does not recover; the report shows the missing invalidations
