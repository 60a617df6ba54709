"""How a route of the stand-in fails, on purpose and for as long as a test wants."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["answer", "drop", "hang", "hold"]


@dataclass(frozen=True)
class Outage:
    """What a route does instead of serving. ValueError if it says two things at once.

    - `answer`: answers `status`, at once, with Retry-After if `retry_after` (seconds) is given;
    - `drop`: ends the connection without an answer;
    - `hang`: gives no answer until the route is mended, then ends the connection;
    - `hold`: keeps the request at the door until the route is mended, and serves it then: the way to stop a client at a
      known place without sleeping.

    With `takes_effect` the request is carried out first, and only its answer is lost or replaced: a token was made, and
    the old one died. `times` is how many requests it strikes; None is every one until the route is mended.
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
            raise ValueError("a held request takes effect when its route is mended: leave takes_effect out")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}; expected at least 1, or none for every request")


class Struck:
    """An outage at work: how many requests it still takes, and its end."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage
        self.left = outage.times
        self.mended = threading.Event()


class Outages:
    """The routes' outages; a route has one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._struck: dict[str, Struck] = {}

    def strike(self, route: str, outage: Outage) -> None:
        self.mend(route)
        with self._lock:
            self._struck[route] = Struck(outage)

    def mend(self, route: str | None) -> None:
        """None mends every route. What was held or left hanging goes on."""
        with self._lock:
            ended = [self._struck.pop(name) for name in list(self._struck) if route in (None, name)]
        for struck in ended:
            struck.mended.set()

    def meet(self, route: str) -> Struck | None:
        """The outage that strikes the request which has just come to `route`, if any."""
        with self._lock:
            struck = self._struck.get(route)
            if struck is None or struck.left == 0:
                return None
            if struck.left is not None:
                struck.left -= 1
            return struck

    def now(self) -> dict[str, Outage]:
        """By route, those that strike the next request."""
        with self._lock:
            return {route: struck.outage for route, struck in self._struck.items() if struck.left != 0}
