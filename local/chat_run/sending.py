"""The senders: each has a connection of its own, and says one thing after the other."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .course import Course
from .messages import Message, signed

MOST_TRIES = 3
TRY_AGAIN = {429, 500, 502, 503, 504}  # what a chat service would send again; anything else is the message's own fault
LONGEST_PAUSE = 10.0  # seconds, whatever Retry-After says
# One answer takes 29 s at most (API Gateway's own limit, which the embedded AWS does not keep). A machine that starts
# fifty containers at once needs longer than that for the first ones, so the senders are patient.
TIMEOUT = 120.0


@dataclass(frozen=True)
class Try:
    """One request, by its sender's clock (epoch seconds). `status` None: no answer came, `code` says why."""

    began: float
    ended: float
    status: int | None
    code: str | None = None


@dataclass(frozen=True)
class Delivery:
    """A message, all tries to have it answered, and the answer if there was one."""

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
    """One of the concurrent senders."""

    def __init__(self, number: int, url: str, key: str) -> None:
        at = urlsplit(url)
        self._number = number
        self._path = at.path
        self._key = key
        self._connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=TIMEOUT)

    def knock(self) -> None:
        """Send an unsigned request, which is refused before anything is read: it only starts a container."""
        with contextlib.suppress(OSError, http.client.HTTPException):  # whatever is wrong, the messages will tell
            self._connection.request("POST", self._path, b"{}", {"Content-Type": "application/json"})
            self._connection.getresponse().read()
            return
        self._connection.close()

    def deliver(self, message: Message) -> Delivery:
        """Send it until it is answered or refused for good, three times at most."""
        tries: list[Try] = []
        while True:
            tried, content, pause = self._post(message.body(self._number))
            tries.append(tried)
            if tried.status == 200:
                return Delivery(message, tuple(tries), str(content.get("answer")))
            if len(tries) == MOST_TRIES or not (tried.status is None or tried.status in TRY_AGAIN):
                return Delivery(message, tuple(tries), None)
            # A signature passes once, and within one second the same message has the same signature.
            time.sleep(max(pause, 1.0 - time.time() % 1.0))

    def _post(self, body: bytes) -> tuple[Try, dict[str, Any], float]:
        """The try, the answer's content, and for how many seconds to leave it."""
        began = time.time()
        try:
            self._connection.request("POST", self._path, body, signed(self._key, int(began), body))
            answer = self._connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            return Try(began, time.time(), None, type(error).__name__), {}, 0.0
        content = content if isinstance(content, dict) else {}
        code = content.get("code") or content.get("message")
        pause = answer.getheader("Retry-After", "")
        seconds = min(float(pause), LONGEST_PAUSE) if pause.isdecimal() else 0.0
        return Try(began, time.time(), answer.status, None if code is None else str(code)), content, seconds


class Senders:
    """All senders at work on one course."""

    def __init__(self, course: Course, url: str, key: str, count: int) -> None:
        self._course = course
        self._lock = threading.Lock()
        self._deliveries: list[Delivery] = []
        self._senders = [Sender(number, url, key) for number in range(1, count + 1)]

    def knock(self) -> None:
        """All at once, so each starts a container of its own, as that many messages at once would."""
        for thread in [_start(sender.knock) for sender in self._senders]:
            thread.join()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They send until the course has nothing more for them, or until this ends."""
        for sender in self._senders:
            _start(self._work, sender)
        try:
            yield
        finally:
            self._course.stop()

    def deliveries(self) -> Sequence[Delivery]:
        """What they have delivered, by the message's number."""
        with self._lock:
            return sorted(self._deliveries, key=lambda delivery: delivery.message.number)

    def _work(self, sender: Sender) -> None:
        while (message := self._course.next()) is not None:
            delivery = sender.deliver(message)
            with self._lock:
                self._deliveries.append(delivery)
            self._course.end(message, answered=delivery.answer is not None)


def _start(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread
