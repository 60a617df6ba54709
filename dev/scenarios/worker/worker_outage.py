"""The outage of `make run-worker OUTAGE=yes`: its figures and checks, from the downstream's own record. Pure.

Only the attempts that count are from the worker's log, and the opening from reads of the breaker's item.

Keys of `outage` in report.json (seconds; instants count from the first request sent):

| key | meaning |
|---|---|
| `began`, `ended` | the outage |
| `calls` | that began in it |
| `probes` | those of them that are certainly probes |
| `counted` | attempts that failed in it and use up one of the policy's attempts, by the worker's log |
| `first_call`, `first_success` | the beginning of the first call after it, the end of the first success; from its end |
| `empty` | from its end to the end of the last request |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dev.emulator.downstream import Call, Outage
from dev.emulator.live_view import counted
from dev.scenarios.runner.checks import check, check_none
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
        seen_open: the instants at which the breaker was read as OPEN, in their order.
    """

    outage: Outage
    settings: Settings
    calls: Sequence[Call]
    retried: Sequence[Retried]
    request_ids: Mapping[str, str]  # by the key of the downstream's call
    seen_open: Sequence[float] = ()

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
    def probes(self) -> list[Call]:
        """The calls of the outage that are probes, because they began after the breaker was seen open.

        The first callers - 1 are left out, since they may have been permitted before it opened. An open breaker that
        was seen before the last success does not count, since that call could close it.
        """
        last = max([self.outage.begins, *map(_ended, self.late_successes)])
        seen = next((at for at in self.seen_open if at > last), math.inf)
        return [call for call in self.during if call.began > seen][self.settings.callers - 1 :]

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
    end, first = record.outage.ends, min((call.began for call in record.after), default=None)
    return {
        "began": since(record.outage.begins, origin),
        "ended": since(end, origin),
        "calls": len(record.during),
        "probes": len(record.probes),
        "counted": len(record.counted),
        "first_call": since(first, end),
        "first_success": since(_ended(record.success), end) if record.success else None,
        "empty": since(last, end),
    }


def checks(record: OutageRecord) -> list[CheckResult]:
    return [few_calls(record), single_probes(record), attempts_kept(record), recovery_found(record)]


def few_calls(record: OutageRecord) -> CheckResult:
    """At most the calls that open the breaker, and one for each time that a probe is due."""
    seconds, made = record.outage.ends - record.outage.begins, len(record.during)
    allowed = record.before_open + record.settings.most_probes(seconds)
    finding = f"{counted(made, 'call')} in {seconds:.0f} s, {allowed} allowed"
    return check("the downstream is hardly called while it is down", made <= allowed if made else None, finding)


def single_probes(record: OutageRecord) -> CheckResult:
    """Each probe begins after its wait, which doubles with each one that failed, up to the first success.

    After the outage also a request without input is answered, with 404. That shows nothing about the downstream, so the
    next probe is due immediately.
    """
    until = record.success.began if record.success else float("inf")
    calls = [*record.probes, *(call for call in record.after if call.began <= until)]
    pairs = list(pairwise(calls))
    early, failed = [], 0
    for earlier, later in pairs:
        failed += earlier.answer != "404"
        wait = later.began - _ended(earlier)
        if wait < (0 if earlier.answer == "404" else record.settings.least_wait(failed)):
            early.append(f"{later.key} {wait:.1f} s after the one before")
    apart = [later.began - _ended(earlier) for earlier, later in pairs]
    finding = f"{counted(len(calls), 'probe')}, {min(apart, default=0):.1f} s apart or more"
    return check_none("one probe at a time, each after its wait", {"too early": early}, finding, shown=bool(pairs))


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
