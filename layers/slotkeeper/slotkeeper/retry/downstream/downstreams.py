"""Asks before each attempt whether the downstream may be called, and reports afterwards what the attempt has shown."""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.health import Answer, Health, Permit, Refusal, State
from slotkeeper.retry.downstream.rules import MIN_PER_SECOND
from slotkeeper.retry.downstream.settings import DownstreamSettings
from slotkeeper.retry.downstream.table import DownstreamTable, MalformedHealth, TooManyWriters
from slotkeeper.retry.errors import Failure

if TYPE_CHECKING:
    from slotkeeper.retry.policy import Policy

DEFAULT = "default"
# Messages of one downstream that may return to be held back again, per second and container. Each is an invocation of
# some 50 ms. With more, a downstream that is down would take the containers from one that works.
RETURNS_PER_CONTAINER = 5.0
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Admission:
    """A permitted attempt. As a context manager it gives the permit back, unless the attempt's answer was reported.

    Args:
        report: reports an answer and the call's duration in seconds, or None and 0 to give the permit back; returns
            whether a failure may count.
        is_permitted: False for a message that is only deleted or dead-lettered: its work may not be called.
        death_counts: whether the death of an earlier attempt may count. It does not while the downstream fails: it may
            have kept the call until the function was stopped.
    """

    def __init__(
        self,
        settings: DownstreamSettings,
        report: Callable[[Answer | None, float], bool],
        *,
        is_permitted: bool = True,
        death_counts: bool = True,
    ) -> None:
        self.is_permitted = is_permitted
        self.death_counts = death_counts
        self._settings = settings
        self._reporter = report
        self._is_reported = False

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_reported:
            self._reporter(None, 0.0)

    def succeeded(self, seconds: float) -> None:
        """Report a success. `seconds`: the duration of the call."""
        self._is_reported = True
        self._reporter(Answer.SUCCEEDED, seconds)

    def failed(self, failure: Failure, seconds: float) -> bool:
        """Report a failure; return whether it may count as one of the request's attempts."""
        self._is_reported = True
        answer = answer_of(failure, self._settings)
        may_count = self._reporter(answer, seconds)
        return may_count or answer == Answer.UNKNOWN


# For a worker that does not watch its downstream.
UNWATCHED = Admission(DownstreamSettings(), lambda *_: True)


@dataclass(frozen=True)
class HeldBack:
    """An attempt that may not begin now.

    Args:
        per_second: how many messages should return in a second after `not_before`.
        most_per_second: how many may, so that the containers have time for other messages of the queue.
        death_counts: as in Admission.
    """

    name: str
    reason: str
    not_before: float
    per_second: float
    most_per_second: float = math.inf
    death_counts: bool = True

    def without_work(self) -> Admission:
        """The admission of a message whose work is not called, and that need not wait."""
        return Admission(DownstreamSettings(), lambda *_: True, is_permitted=False, death_counts=self.death_counts)


class Downstreams:
    """The downstreams of one worker, whose state all containers share. Reporting to them never raises.

    Args:
        most: the event source's maximum concurrency, the upper bound of the concurrency limit.
        on_health: receives the downstream's name and its state before and after a change or refusal.
        on_unreported: receives the reason why an outcome could not be reported.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        table: DownstreamTable,
        *,
        most: int,
        on_health: Callable[[str, Health, Health, int | None], None] = lambda *_: None,
        on_unreported: Callable[[str], None] = lambda _reason: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._most = most
        self._on_health = on_health
        self._on_unreported = on_unreported
        self._clock = clock

    def ask(self, name: str, policy: Policy, *, is_retry: bool, lease: float) -> Admission | HeldBack:
        """Ask whether an attempt may begin. An Admission must be used as a context manager.

        Args:
            lease: seconds after which the attempt no longer counts as under way if it is not reported.

        Raises:
            MalformedHealth: the downstream's state could not be read.
            ClientError, BotoCoreError: DynamoDB failed.
        """
        settings = policy.downstream_settings(name)
        wanted = Permit(uuid.uuid4().hex[:12], self._clock() + lease, is_retry=is_retry)

        def decide(health: Health) -> tuple[Health, Permit | Refusal]:
            return rules.ask(health, settings, wanted, self._most, self._clock())

        try:
            before, after, answer = self._table.change(name, decide)
        except TooManyWriters:
            # The others have written meanwhile. As an error this would hide the message for minutes.
            return HeldBack(name, "too many containers ask at the same time", self._clock(), MIN_PER_SECOND)
        self._on_health(name, before, after, after.callers(settings, self._most))
        death_counts = not settings.breaker.enabled or (after.healthy and after.state == State.CLOSED)
        if isinstance(answer, Refusal):
            most_per_second = RETURNS_PER_CONTAINER * self._most
            return HeldBack(name, answer.reason, answer.not_before, answer.per_second, most_per_second, death_counts)
        return Admission(settings, partial(self._report, name, settings, answer), death_counts=death_counts)

    def _report(
        self, name: str, settings: DownstreamSettings, permit: Permit, answer: Answer | None, seconds: float
    ) -> bool:
        def decide(health: Health) -> tuple[Health, bool]:
            now = self._clock()
            if answer is None:
                return rules.give_back(health, permit, now), True
            return rules.report(health, settings, permit, answer, seconds, self._most, now)

        try:
            before, after, counts = self._table.change(name, decide)
        except (ClientError, BotoCoreError, MalformedHealth, TooManyWriters) as error:
            self._on_unreported(f"{type(error).__name__}: {error}")
            # The downstream may be down. If the failure counted, an outage could use up a second attempt.
            return not settings.breaker.enabled
        self._on_health(name, before, after, after.callers(settings, self._most))
        return counts


def answer_of(failure: Failure, settings: DownstreamSettings) -> Answer:
    """Return what a failure shows about the downstream."""
    if failure.final:
        return Answer.UNKNOWN
    if any(name in settings.concurrency.errors for name in failure.types):
        return Answer.THROTTLED
    if any(name in settings.breaker.errors for name in failure.types):
        return Answer.FAILED
    return Answer.UNKNOWN


def name_of(named: str | Callable[[Any], str], request: Any) -> str:
    """Return the downstream's name of a request, DEFAULT if the function fails or returns no valid name.

    A request must not stay on the queue forever because its payload does not name a downstream.
    """
    if isinstance(named, str):
        return named
    try:
        name = named(request)
    except Exception:
        return DEFAULT
    return name if isinstance(name, str) and NAME.fullmatch(name) else DEFAULT


def check_name(name: str) -> str:
    """Return the name. Raises ValueError if it is not 1 to 64 characters of A-Z, a-z, 0-9, _, . and -."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a downstream's name is 1 to 64 characters of A-Z, a-z, 0-9, _, . and -, got {name!r}")
    return name


def names(policy: Policy, known: Iterable[str]) -> list[str]:
    """Return the names of all downstreams that a policy or the table has, and DEFAULT."""
    return sorted({DEFAULT, *policy.downstreams, *known})
