"""Circuit breakers by the rules of libraries, as their documentation states them, in place of the worker's Downstreams.

A library keeps its state in one process. Here all containers share it, which only helps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from slotkeeper.retry.downstream.downstreams import Admission, Rejection
from slotkeeper.retry.downstream.health import Answer, DownstreamSettings, State
from slotkeeper.retry.policy import Policy

SETTINGS = DownstreamSettings()
RETURNS_PER_SECOND = 2.0  # of messages that are held back, at least; a backlog returns within a minute


@dataclass(frozen=True)
class BreakerRules:
    """The rules of one design.

    Args:
        calls: the last calls that are considered; fewer do not open the breaker.
        share: of failures among them, from which it opens.
        wait: seconds for which it is open.
        probes: the calls that are permitted after that. If fewer than `share` of them fail, it closes.
        window: seconds after which the number of callers grows by half; it is one when the breaker closes. 0: no limit.
    """

    calls: int
    share: float
    wait: float
    probes: int
    window: float = 0.0


RULES = {
    # A breaker of consecutive failures with a fixed wait, and callers that grow from one after it.
    "five in a row, 30 s": BreakerRules(5, 1.0, 30.0, 1, window=10.0),
    # "CircuitBreaker", "Create and configure a CircuitBreaker": the default values of failureRateThreshold,
    # slidingWindowSize and minimumNumberOfCalls, waitDurationInOpenState, permittedNumberOfCallsInHalfOpenState.
    "resilience4j": BreakerRules(100, 0.5, 60.0, 10),
    # README: ReadyToTrip (more than 5 consecutive failures), Timeout, MaxRequests.
    "gobreaker": BreakerRules(6, 1.0, 60.0, 1),
}


class OtherBreakers:
    """A breaker for each downstream, with the interface of Downstreams.

    Args:
        most: the event source's maximum concurrency.
        clock: seconds since the epoch.
    """

    def __init__(self, rules: BreakerRules, most: int, clock: Callable[[], float]) -> None:
        self._new = partial(_Breaker, rules, most, clock)
        self._by_name: dict[str, _Breaker] = {}

    def ask(self, name: str, _policy: Policy, **_: object) -> Admission | Rejection:
        """Ask whether an attempt may begin."""
        return self._by_name.setdefault(name, self._new()).ask(name)

    @property
    def opened(self) -> int:
        """How often the breakers have opened."""
        return sum(breaker.opened for breaker in self._by_name.values())


@dataclass
class _Breaker:
    rules: BreakerRules
    most: int
    clock: Callable[[], float]
    state: State = State.CLOSED
    opened: int = 0
    _since: float = 0.0
    _epoch: int = 0
    _begun: int = 0
    _under_way: int = 0
    _limit: int = 0
    _outcomes: deque[bool] = field(default_factory=deque)

    def ask(self, name: str) -> Admission | Rejection:
        now, due = self.clock(), self._since + self.rules.wait
        if self.state == State.OPEN and now < due:
            return Rejection(name, "breaker", due, RETURNS_PER_SECOND)
        if self.state == State.OPEN:
            self._change(State.HALF_OPEN)
        if self.state == State.HALF_OPEN and self._begun >= self.rules.probes:
            return Rejection(name, "breaker", now, RETURNS_PER_SECOND)
        if self.state == State.CLOSED and self._under_way >= self._callers(now):
            return Rejection(name, "concurrency", now, RETURNS_PER_SECOND)
        self._begun += 1
        self._under_way += 1
        epoch = self._epoch
        return Admission(SETTINGS, lambda call: self._report(epoch, call.answer if call else None))

    def _callers(self, now: float) -> int:
        if self._limit and now >= self._since + self.rules.window:
            self._limit, self._since = self._limit + max(1, self._limit // 2), now
        return self._limit or self.most

    def _report(self, epoch: int, answer: Answer | None) -> bool:
        self._under_way -= 1
        if epoch != self._epoch:
            return True
        if answer in (None, Answer.UNKNOWN):
            self._begun -= self.state == State.HALF_OPEN
            return True
        is_probe = self.state == State.HALF_OPEN
        kept = self.rules.probes if is_probe else self.rules.calls
        self._outcomes = deque([*self._outcomes, answer == Answer.FAILED], maxlen=kept)
        if len(self._outcomes) < kept:
            return True
        if sum(self._outcomes) >= self.rules.share * kept:
            self._change(State.OPEN)
            self.opened += not is_probe
        elif is_probe:
            self._change(State.CLOSED)
            self._limit = 1 if self.rules.window else 0
        return True

    def _change(self, state: State) -> None:
        self.state, self._since, self._epoch, self._begun = state, self.clock(), self._epoch + 1, 0
        self._outcomes.clear()
