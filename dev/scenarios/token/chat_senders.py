"""The senders of the chat, each of which sends one message after another."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dev.emulator.chatbot_client import signed

from .message_feed import Message, MessageFeed

MAX_TRIES = 3
RETRYABLE = {429, 500, 502, 503, 504}  # after these a chat service would send the message again
MAX_PAUSE = 10.0  # seconds, also if Retry-After is longer
# API Gateway answers within 29 s (its guide, "Quotas for configuring and running a REST API"). The embedded AWS has no
# such limit, and a machine that starts fifty containers together needs longer.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Try:
    """One request, by its sender's clock (epoch seconds). `status` None: no answer, for the reason in `code`."""

    began: float
    ended: float
    status: int | None
    code: str | None = None


@dataclass(frozen=True)
class Delivery:
    """A message, its tries, and the answer if there was one."""

    message: Message
    tries: tuple[Try, ...]
    answer: str | None

    @property
    def sent(self) -> float:
        return self.tries[0].began

    @property
    def ended(self) -> float:
        return self.tries[-1].ended


class Sender:
    """One of the concurrent senders. Each request has its own connection, so none expires between two requests."""

    def __init__(self, number: int, url: str, key: str) -> None:
        self._number = number
        self._at = urlsplit(url)
        self._key = key

    def warm_up(self) -> None:
        """Start a container with an unsigned request, which is refused before the token is read."""
        with contextlib.suppress(OSError, http.client.HTTPException):  # a real fault shows in the messages
            self._request(b"{}", {"Content-Type": "application/json"})

    def deliver(self, message: Message) -> Delivery:
        """Send it until it is answered or refused for a permanent reason, at most three times."""
        tries: list[Try] = []
        while True:
            tried, content, pause = self._post(message.body(self._number))
            tries.append(tried)
            if tried.status == 200:
                return Delivery(message, tuple(tries), str(content.get("answer")))
            if len(tries) == MAX_TRIES or not (tried.status is None or tried.status in RETRYABLE):
                return Delivery(message, tuple(tries), None)
            # A signature is accepted once, and within a second a message has the same signature.
            time.sleep(max(pause, 1.0 - time.time() % 1.0))

    def _post(self, body: bytes) -> tuple[Try, dict[str, Any], float]:
        """The try, the answer's content, and the seconds to wait before the next try."""
        started = time.time()
        try:
            status, pause, answer = self._request(body, signed(self._key, int(started), body))
            content = json.loads(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Try(started, time.time(), None, type(error).__name__), {}, 0.0
        content = content if isinstance(content, dict) else {}
        code = content.get("code") or content.get("message")
        seconds = min(float(pause), MAX_PAUSE) if pause.isdecimal() else 0.0
        return Try(started, time.time(), status, None if code is None else str(code)), content, seconds

    def _request(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        """Status, Retry-After and body of the answer."""
        connection = http.client.HTTPConnection(str(self._at.hostname), self._at.port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            connection.request("POST", self._at.path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.getheader("Retry-After", ""), answer.read()


class Senders:
    """All senders of one feed."""

    def __init__(self, feed: MessageFeed, url: str, key: str, count: int) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._deliveries: list[Delivery] = []
        self._warm = 0
        self._senders = [Sender(number, url, key) for number in range(1, count + 1)]

    def warm_up(self) -> None:
        """Call all senders concurrently, so that each request starts a container."""
        for sender in self._senders:
            _start(self._warm_up, sender)

    @property
    def warm(self) -> int:
        """The number of warm-up requests that were answered."""
        with self._lock:
            return self._warm

    @contextmanager
    def sending(self) -> Iterator[None]:
        """The senders send until the feed has no more messages, or until this context ends."""
        for sender in self._senders:
            _start(self._work, sender)
        try:
            yield
        finally:
            self._feed.stop()

    def deliveries(self) -> Sequence[Delivery]:
        """All deliveries, by message number."""
        with self._lock:
            return sorted(self._deliveries, key=lambda delivery: delivery.message.number)

    def _warm_up(self, sender: Sender) -> None:
        sender.warm_up()
        with self._lock:
            self._warm += 1

    def _work(self, sender: Sender) -> None:
        while (message := self._feed.next()) is not None:
            delivery = sender.deliver(message)
            with self._lock:
                self._deliveries.append(delivery)
            self._feed.end(message, answered=delivery.answer is not None)


def _start(target: Callable[[Sender], None], sender: Sender) -> None:
    threading.Thread(target=target, args=(sender,), daemon=True).start()
