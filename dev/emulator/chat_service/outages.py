"""Outages of a route, for as long as a test needs them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["answer", "drop", "hang", "hold"]


@dataclass(frozen=True)
class Outage:
    """The way in which a route fails. Raises ValueError if the fields contradict each other.

    Kinds:
    - `answer`: answers `status` immediately, with Retry-After if `retry_after` (seconds) is set;
    - `drop`: closes the connection without an answer;
    - `hang`: gives no answer until the outage ends, then closes the connection;
    - `hold`: delays the request until the outage ends, then serves it. A test stops a client there without sleeping.

    Args:
        takes_effect: process the request first, and lose or replace only its answer. `POST /auth` creates a token.
        times: the number of requests that fail; None: all until the outage ends.
    """

    kind: Kind = "answer"
    status: int = 503
    retry_after: int | None = None
    takes_effect: bool = False
    times: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; expected one of {', '.join(get_args(Kind))}")
        if not 400 <= self.status <= 599:
            raise ValueError(f"status is {self.status}; an outage answers 400 to 599")
        if self.kind == "hold" and self.takes_effect:
            raise ValueError("a held request takes effect when the outage ends: remove takes_effect")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}; expected at least 1, or none for every request")


class Struck:
    """An outage in progress: the number of requests that it still affects, and its end."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage
        self.left = outage.times
        self.ended = threading.Event()


class Outages:
    """The routes' outages; a route has one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._struck: dict[str, Struck] = {}

    def strike(self, route: str, outage: Outage) -> None:
        self.end_outage(route)
        with self._lock:
            self._struck[route] = Struck(outage)

    def end_outage(self, route: str | None) -> None:
        """None ends all outages. Requests that they hold or leave hanging continue."""
        with self._lock:
            ended = [self._struck.pop(name) for name in list(self._struck) if route in (None, name)]
        for struck in ended:
            struck.ended.set()

    def meet(self, route: str) -> Struck | None:
        """The outage for a request that has just arrived at `route`, if any."""
        with self._lock:
            struck = self._struck.get(route)
            if struck is None or struck.left == 0:
                return None
            if struck.left is not None:
                struck.left -= 1
            return struck

    def now(self) -> dict[str, Outage]:
        """By route, the outages that apply to the next request."""
        with self._lock:
            return {route: struck.outage for route, struck in self._struck.items() if struck.left != 0}
