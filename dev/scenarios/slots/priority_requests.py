"""The requests of `make run PRIORITIES=yes`, and when each is sent. Pure.

1. First the backlog: half of low priority, half of normal priority, some of them heavy.
2. While it is worked off, urgent requests, of high priority: one of them heavy.
3. A request of high priority that needs all slots. While slots are kept free for it, an operator cancels it.
4. A request of high priority that is heavier than the limit, so it is blocked, and keeps no other request out.
5. An operator raises the limit. The blocked request is the next to start. One more urgent request comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from .slot_requests import Request, WorkList

MIN_REQUESTS, MIN_LIMIT = 12, 3
URGENT_SHARE = 0.15
HEAVY_EVERY = 6  # of the backlog
# Seconds for which a job waits before its work. Without them the hand-offs would take much of a short run's time, and
# with equal ones several slots would be released at the same instant.
LINGER = (0.6, 1.4, 1.0)


class Action(Enum):
    SEND = auto()
    CANCEL = auto()  # send, and cancel it while slots are kept free for it
    RAISE = auto()  # raise the limit when others have started while the blocked request waited


@dataclass(frozen=True)
class Step:
    """An action when so many workflows have ended. `request`: None for a limit that is raised."""

    after: int
    action: Action
    request: Request | None = None


@dataclass(frozen=True)
class Mix:
    """The requests of a run. `raised`: the limit after it was raised."""

    inputs: Mapping[str, bytes]
    backlog: Sequence[Request]
    steps: Sequence[Step]
    cancelled: str
    blocked: str
    raised: int


def heavy_weight(limit: int) -> int:
    return limit - 1


def mix(work: WorkList, limit: int) -> Mix:
    """Give the requests of a work list, at least MIN_REQUESTS, their priorities and weights for this limit."""
    requests = [_lingering(request, LINGER[i % len(LINGER)]) for i, request in enumerate(work.requests)]
    count = max(3, round(URGENT_SHARE * len(requests)))
    backlog, urgent = requests[: -count - 2], requests[-count - 2 : -2]
    cancelled, blocked = requests[-2:]
    backlog = [
        replace(
            each,
            priority="normal" if number % 2 else "low",
            weight=heavy_weight(limit) if number % HEAVY_EVERY == HEAVY_EVERY - 1 else 1,
        )
        for number, each in enumerate(backlog)
    ]
    urgent = [replace(each, priority="high") for each in urgent]
    urgent[count // 2] = replace(urgent[count // 2], weight=heavy_weight(limit))
    cancelled = replace(cancelled, priority="high", weight=limit)
    blocked = replace(blocked, priority="high", weight=limit + 1)
    # The second half ends without further requests of high priority but the last.
    apart = len(requests) / 2 / count
    sends = [Step(1 + int(number * apart), Action.SEND, each) for number, each in enumerate(urgent[:-1])]
    half = len(requests) // 2
    return Mix(
        work.inputs,
        backlog,
        [
            *sends,
            Step(half, Action.CANCEL, cancelled),
            Step(half, Action.SEND, blocked),
            Step(half, Action.RAISE),
            Step(half + 2, Action.SEND, urgent[-1]),
        ],
        cancelled.request_id,
        blocked.request_id,
        limit + 2,
    )


def _lingering(request: Request, seconds: float) -> Request:
    return replace(request, arguments=request.arguments | {"--linger_seconds": f"{seconds:g}"})
