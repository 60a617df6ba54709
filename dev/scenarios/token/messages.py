"""The messages, their concurrent senders, and the invalidations of the token between them."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from dev.emulator.chatbot_client import post, signed

# API Gateway answers within 29 s (its guide, "Quotas for configuring and running a REST API"). The embedded AWS has no
# such limit, and a machine that starts fifty containers together needs longer.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Delivery:
    """A message and its request, by its sender's clock (epoch seconds).

    Args:
        number: of the message, from 1.
        status: None without an answer.
        code: the error's code, or the reason why there is no answer.
        answer: the bot's answer. None if it refused the message.
    """

    number: int
    sent: float
    ended: float
    status: int | None
    code: str | None = None
    answer: str | None = None

    @property
    def message_id(self) -> str:
        return id_of(self.number)

    @property
    def text(self) -> str:
        return text_of(self.number)


def id_of(number: int) -> str:
    return f"m{number:05d}"


def text_of(number: int) -> str:
    """The text of a message. Each has its own, by which the API's log identifies it."""
    return f"Where is order {number}?"


@dataclass(frozen=True)
class ChatbotClient:
    """Sends to the chatbot."""

    url: str
    key: str

    def warm_up(self) -> None:
        """Start a container with an unsigned request, which is refused before the token is read."""
        with contextlib.suppress(OSError, http.client.HTTPException):  # a real fault shows in the messages
            post(self.url, b"{}", {"Content-Type": "application/json"}, TIMEOUT)

    def deliver(self, number: int) -> Delivery:
        """Send a message once. Each is a conversation of its own."""
        name = id_of(number)
        content = {"message_id": name, "text": text_of(number), "conversation": name}
        body, sent = json.dumps(content).encode(), time.time()
        try:
            status, text = post(self.url, body, signed(self.key, int(sent), body), TIMEOUT)
            answer = dict(json.loads(text))
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            return Delivery(number, sent, time.time(), None, type(error).__name__)
        code = answer.get("code") or answer.get("message")
        return Delivery(number, sent, time.time(), status, code, answer.get("answer") if status == 200 else None)


class Rounds:
    """Sends the messages in one round more than there are invalidations, each round concurrently.

    1. In each round but the first, the token is invalidated when a quarter of the messages have ended and another
       quarter is in flight. Then the other half is sent, at least one message, and meets the invalid token together.
    2. A round begins when the one before has ended. So no message meets two invalidations: the protocol takes a 401 for
       a newer token as an error of the request, which this run does not test.

    Args:
        deliver: sends one message.
        invalidate: the live token; None without effect.
    """

    def __init__(
        self,
        messages: int,
        senders: int,
        invalidations: int,
        deliver: Callable[[int], Delivery],
        invalidate: Callable[[], float | None],
    ) -> None:
        count = invalidations + 1
        self._rounds = [range(i * messages // count + 1, (i + 1) * messages // count + 1) for i in range(count)]
        self._senders = senders
        self._deliver = deliver
        self._invalidate = invalidate
        self._stopped = threading.Event()
        self.invalidations = 0
        self.sent: list[Future[Delivery]] = []

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send in another thread, until all messages have ended or this context ends."""
        threading.Thread(target=self._send).start()
        try:
            yield
        finally:
            self._stopped.set()

    def deliveries(self) -> list[Delivery]:
        """Those that have ended, by message number."""
        done = [future.result() for future in list(self.sent) if future.done() and not future.cancelled()]
        return sorted(done, key=lambda delivery: delivery.number)

    def _send(self) -> None:
        with ThreadPoolExecutor(self._senders) as pool:
            for number, messages in enumerate(self._rounds):
                half = len(messages) // 2
                first = self._start(pool, messages[:half])
                list(islice(as_completed(first), half // 2))
                if self._stopped.is_set():
                    pool.shutdown(cancel_futures=True)
                    return
                if number:
                    self.invalidations += self._invalidate() is not None
                wait([*first, *self._start(pool, messages[half:])])

    def _start(self, pool: ThreadPoolExecutor, messages: Sequence[int]) -> list[Future[Delivery]]:
        started = [pool.submit(self._deliver, message) for message in messages]
        self.sent += started
        return started
