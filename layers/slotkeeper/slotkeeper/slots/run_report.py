"""The report of a janitor run, its order of work, and which failures end a part of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, cast

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.observability import logger

if TYPE_CHECKING:
    from slotkeeper.slots.process import Process

MALFORMED_ITEM = (
    "An item of the slot table is malformed; nothing of its process is settled or freed until it is repaired"
)
_THROTTLED = (
    "ThrottlingException",
    "TooManyRequestsException",
    "RequestThrottled",
    "ProvisionedThroughputExceededException",
)


def is_outage(error: BaseException) -> bool:
    """Whether a service does not answer, fails with 5xx, or throttles, so that the next call would fail as slowly."""
    if not isinstance(error, ClientError):
        return isinstance(error, BotoCoreError)
    response = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or response["Error"]["Code"] in _THROTTLED


def is_denied(error: Exception) -> bool:
    """Whether a role or a key does not permit the call, so that no repetition succeeds before an operator permits it.

    The codes differ by service: AccessDenied, AccessDeniedException, KmsAccessDeniedException.
    """
    return isinstance(error, ClientError) and "AccessDenied" in error.response["Error"]["Code"]


def in_turns[T](work: Iterable[T], process_of: Callable[[T], str]) -> list[T]:
    """Order work so that the processes take turns. Ten thousand pieces of one process then delay no other process."""
    by_process: dict[str, list[T]] = defaultdict(list)
    for piece in work:
        by_process[process_of(piece)].append(piece)
    missing = object()
    turns = zip_longest(*by_process.values(), fillvalue=missing)
    return [cast(T, piece) for piece in chain.from_iterable(turns) if piece is not missing]


@dataclass(frozen=True)
class QueueLength:
    """How many requests of a process are queued, and for how many seconds the oldest has been."""

    length: int
    oldest: float


@dataclass
class RunReport:
    """The findings and actions of a run. `counts` has metric names as keys."""

    counts: Counter[str] = field(default_factory=Counter)
    queues: dict[str, QueueLength] = field(default_factory=dict)  # by process, of those with queued requests
    processes: list[Process] = field(default_factory=list)  # as read at the start of the run
    settled: list[tuple[str, str]] = field(default_factory=list)  # process and execution of each recorded outcome

    def note(self, metric: str, message: str, **details: object) -> None:
        self.counts[metric] += 1
        logger.warning(message, extra=details)

    def failed(self, message: str, error: Exception, **details: object) -> None:
        self.note("JanitorErrors", message, error=f"{type(error).__name__}: {error}", **details)

    def could_not_check(self, message: str, error: Exception, executions: Iterable[str], target: str) -> None:
        """Report dead holders that keep their slots, because a check of their work failed.

        Those of a denied check are counted too: they keep their slots until an operator permits it, or releases them.
        """
        names = list(executions)
        self.failed(message, error, target=target, executions=names)
        if is_denied(error):
            for name in names:
                self.note(
                    "HoldersUnreadable", "A denied check keeps a dead holder's slot", execution=name, target=target
                )

    def cut_short(self, message: str, **details: object) -> None:
        """Report, once per run, that work is left because the run's time has ended."""
        if not self.counts["JanitorRunsCutShort"]:
            self.note("JanitorRunsCutShort", message, **details)

    @contextmanager
    def guard(self, message: str, **details: object) -> Iterator[None]:
        """Report an exception of the block and continue after it: one unhealthy holder does not stop the run."""
        try:
            yield
        except Exception as error:
            self.failed(message, error, **details)
