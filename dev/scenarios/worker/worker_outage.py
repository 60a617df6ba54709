"""The outage of `make run-worker OUTAGE=yes`: its figures and checks, from the downstream's own record. Pure.

Only the attempts that count are from the worker's log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.downstream import Call, Outage
from dev.emulator.live_view import counted
from dev.scenarios.runner.checks import check
from dev.scenarios.runner.scenario import since
from slotkeeper.retry.downstream.rules import FIRST_PROBE, PROBE_GROWTH, PROBE_JITTER
from slotkeeper_cli.audit.check_result import CheckResult

REFUSALS = ("503", "dropped")


@dataclass(frozen=True)
class Settings:
    """The downstream's settings in the policy, in seconds. `callers`: the event source's concurrency."""

    threshold: int
    recovery: float
    callers: int

    def least_wait(self, failed_probes: int) -> float:
        """The shortest wait for the next probe."""
        return (1 - PROBE_JITTER) * self.recovery * min(1.0, FIRST_PROBE * PROBE_GROWTH**failed_probes)

    def most_probes(self, seconds: float) -> int:
        """The most probes that can be due in a time in which each fails."""
        count, passed = 0, self.least_wait(0)
        while passed < seconds:
            count += 1
            passed += self.least_wait(count)
        return count


@dataclass(frozen=True)
class Retried:
    """A failed attempt with a next one, by the worker's log. `at`: epoch seconds."""

    request_id: str
    at: float
    counted: bool


@dataclass(frozen=True)
class OutageRecord:
    """What a run with an outage has recorded.

    Args:
        retried: in the order of the log.
    """

    outage: Outage
    settings: Settings
    calls: Sequence[Call]
    retried: Sequence[Retried]
    request_ids: Mapping[str, str]  # by the key of the downstream's call

    @property
    def during(self) -> list[Call]:
        """The calls that began in the outage."""
        return [call for call in self.calls if self.outage.begins <= call.began < self.outage.ends]

    @property
    def after(self) -> list[Call]:
        return [call for call in self.calls if call.began >= self.outage.ends]

    @property
    def success(self) -> Call | None:
        """The first success after the outage."""
        return min((call for call in self.after if call.answer == "200"), key=_ended, default=None)

    @property
    def late_successes(self) -> list[Call]:
        """The calls from before the outage that succeeded in it. Each ends a series of consecutive failures."""
        begins, ends = self.outage.begins, self.outage.ends
        return [each for each in self.calls if each.began < begins <= _ended(each) < ends and each.answer == "200"]

    @property
    def before_open(self) -> int:
        """The most calls of the outage that are no probe.

        `threshold` consecutive failures open the breaker. At that time at most callers - 1 others are under way, and
        between the last success and its report each other caller may have begun one call.
        """
        until_open = self.settings.threshold + 2 * (self.settings.callers - 1)
        return until_open * (1 + len(self.late_successes))

    @property
    def counted(self) -> list[str]:
        """The requests of the outage's failed calls that count as attempts: the first line of the log after each."""
        found = []
        for call in self.during:
            lines = [
                each
                for each in self.retried
                if each.request_id == self.request_ids.get(call.key) and each.at >= _ended(call) - 0.001  # it has ms
            ]
            if lines and lines[0].counted and call.number == 0:
                found.append(lines[0].request_id)
        return found


def _ended(call: Call) -> float:
    return call.began if call.ended is None else call.ended


def figures(record: OutageRecord, origin: float, last: float) -> dict[str, Any]:
    """`last`: the end of the last request."""
    began, end = since(record.outage.begins, origin), record.outage.ends
    first = min((call.began for call in record.after), default=None)
    return {
        "outage": f"from {began} to {since(end, origin)} s",
        "calls in the outage": len(record.during),
        "attempts that it used up": len(record.counted),
        "first call after it": since(first, end),
        "first success after it": since(_ended(record.success), end) if record.success else None,
        "last request after it": since(last, end),
    }


def checks(record: OutageRecord) -> list[CheckResult]:
    return [few_calls(record), attempts_kept(record), recovery_found(record)]


def few_calls(record: OutageRecord) -> CheckResult:
    """At most the calls that open the breaker, and one for each time that a probe is due."""
    seconds, made = record.outage.ends - record.outage.begins, len(record.during)
    allowed = record.before_open + record.settings.most_probes(seconds)
    finding = f"{counted(made, 'call')} in {seconds:.0f} s, {allowed} allowed"
    return check("the downstream is hardly called while it is down", made <= allowed if made else None, finding)


def attempts_kept(record: OutageRecord) -> CheckResult:
    """A failure uses up an attempt only if it directly follows a success, so an outage uses up one.

    Calls that began before the outage can succeed in it. After each success, one more failure may count.
    """
    late = record.late_successes
    used, allowed = record.counted, 1 + len(late)
    name = "the outage uses up at most one attempt in all"
    finding = f"{counted(len(used), 'attempt')} of {counted(len(record.during), 'failed call')}"
    late_ones = f"; {counted(len(late), 'earlier call')} still succeeded in it" if late else ""
    return check(name, len(used) <= allowed if record.during else None, finding + late_ones)


def recovery_found(record: OutageRecord) -> CheckResult:
    """The first probe of a request that can succeed succeeds."""
    able = [call for call in record.after if call.answer != "404"]
    name = "the first probe after the outage succeeds"
    if not able:
        return check(name, False, "no call after the outage")
    finding = f"{able[0].answer}, {_ended(able[0]) - record.outage.ends:.1f} s after it; a probe is due within "
    return check(name, able[0].answer == "200", f"{finding}{record.settings.recovery:g} s")
