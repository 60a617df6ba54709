"""Which message is sent next, and when the token is invalidated for all who use it."""

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
    "What does express delivery cost?",
    "Is the blue one still in stock?",
)


@dataclass(frozen=True)
class Message:
    """One message. No two have the same text, so the API's log tells them apart."""

    number: int  # from 1

    @property
    def message_id(self) -> str:
        return f"m{self.number:05d}"

    @property
    def text(self) -> str:
        return f"{QUESTIONS[self.number % len(QUESTIONS)]} (customer {self.number})"

    def body(self, sender: int) -> bytes:
        """What is sent: a sender's messages are one conversation."""
        content = {"message_id": self.message_id, "text": self.text, "conversation": f"sender-{sender}"}
        return json.dumps(content).encode()


@dataclass(frozen=True)
class Invalidation:
    """The live token was invalidated at `at` (epoch seconds)."""

    at: float
    token: int


@dataclass(frozen=True)
class FeedState:
    """How many messages were sent, ended (answered or given up) and answered, and the invalidations so far."""

    sent: int
    ended: int
    answered: int
    invalidations: int


def recovered(log: Sequence[Request], invalidated: int, in_flight: Collection[str]) -> bool:
    """Whether the token after `invalidated` is in use, and no message still waits because of it.

    The second matters as much: a message that a second invalidation meets is refused, by the protocol's own rule that a
    401 on a newer token is the request's fault. The run does not set out to show that.
    """
    served = any(r.status == 200 and r.text is not None and (r.token or 0) > invalidated for r in log)
    return served and not any(r.status == 401 and r.text in in_flight for r in log)


class MessageFeed:
    """Hands the messages to the senders, and makes the invalidations at even steps of progress. Thread-safe.

    Each invalidation is made by the sender whose message's end made it due, or as soon after that as the one before it
    has recovered. So that many messages meet each one, a message is not sent long before its turn: half a step at most,
    or half of the senders, are ahead of an invalidation that has not been made yet.

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
        """The next message to send, as soon as it may be sent; None if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._sent == len(self._messages) or self._may_send())
            if self._stopped or self._sent == len(self._messages):
                return None
            message = self._messages[self._sent]
            self._sent += 1
            self._in_flight.add(message.text)
            return message

    def end(self, message: Message, *, answered: bool) -> None:
        """The message has come to its end."""
        with self._changed:
            self._in_flight.remove(message.text)
            self._ended += 1
            self._answered += answered
            if self._is_due():
                self._invalidate()
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is sent."""
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
        # At least one message is kept back for each invalidation that is left: a message has to meet the dead token.
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
            self._gave_up = True  # it will never recover: the report shows what is missing
