"""Health checks, their findings, and running them. A check that fails does not end the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from slotkeeper_cli.errors import failure_text, is_failure
from slotkeeper_cli.formatting import duration, iso, seconds
from slotkeeper_cli.output import Block, styled, whole

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

Severity = Literal["warn", "bad"]
Level = Literal["absent", "ok", "warn", "bad"]
LEVELS: tuple[Level, ...] = ("absent", "ok", "warn", "bad")
DEPLOY = "Deploy the stack again."
# Findings of one check that are shown one by one, of a process and of others: one cause may have hundreds of them.
_OF_PROCESS, _OF_OTHERS = 3, 50
_STYLES = {"bad": "red", "warn": "yellow", "ok": "green", "absent": "dim"}


@dataclass(frozen=True)
class Finding:
    """A fault.

    Args:
        severity: `bad` must be fixed; `warn` may be intended, or becomes bad later.
        what: the fault, on one line.
        why: its cause or effect, and the remedy if that is not one command.
        command: what fixes or explains it.
        process: the process that is concerned.
        since: seconds since the epoch.
    """

    severity: Severity
    what: str
    why: str = ""
    command: str | None = None
    process: str | None = None
    since: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON shows it."""
        return vars(self) | {"since": None if self.since is None else iso(self.since)}


@dataclass(frozen=True)
class HealthCheck:
    """One check of a stack.

    Args:
        name: used by --only and in JSON.
        about: the statement that is checked.
        find: receives the account and the time, in seconds since the epoch; yields a finding for each fault.
        flow: the optional flow that is checked; a stack without it is not. Empty for the slots.
        of_processes: whether it checks each process, without those that are malformed.
        is_urgent: whether it is cheap, and finds what an operator must know at night.
    """

    name: str
    about: str
    find: Callable[[Account, float], Iterable[Finding]]
    flow: str = ""
    of_processes: bool = False
    is_urgent: bool = False


@dataclass(frozen=True)
class HealthCheckResult:
    """A check with its findings. `error`: why it could not be made. `unread`: the malformed processes, not checked."""

    check: HealthCheck
    findings: tuple[Finding, ...] = ()
    is_absent: bool = False
    error: str = ""
    unread: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        return "absent" if self.is_absent else worst(finding.severity for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        about = f"{self.check.about} (not checked: {', '.join(self.unread)})" if self.unread else self.check.about
        findings = [finding.as_dict() for finding in self.findings]
        return {"check": self.check.name, "level": self.level, "about": about, "findings": findings}


def finding_lines(finding: Mapping[str, Any], now: float, check: str = "") -> Block:
    """A finding's dictionary as text: the fault, since when and why, and the check; then the command."""
    since = f" (for {duration(now - seconds(finding['since']))})" if finding["since"] else ""
    why = f": {finding['why']}" if finding["why"] else ""
    shown = Text.assemble((f"{finding['severity']:<5} ", _STYLES[finding["severity"]]))
    shown += styled(f"{finding['what']}{since}{why}") + styled(f"  {check}" if check else "", "dim")
    return [shown] + [whole(f"      -> {finding['command']}", "yellow")] * bool(finding["command"])


def worst(levels: Iterable[Level]) -> Level:
    """The worst of the levels; ok if there are none."""
    return max(levels, key=LEVELS.index, default="ok")


def _folded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, of which many that are equally severe and of one process are one after the first."""
    alike: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.severity, finding.process), []).append(finding)
    for (_, process), every in alike.items():
        most = _OF_PROCESS if process else _OF_OTHERS
        yield from every[:most]
        if more := every[most:]:
            yield replace(more[0], what=f"{len(more):,} more, such as: {more[0].what}")


def examine(account: Account, checks: Iterable[HealthCheck], now: float) -> Iterator[HealthCheckResult]:
    """Make the checks. One that cannot be made has the reason, as a warning."""
    absent = {flow.name for flow in account.stack.not_deployed}
    for check in checks:
        if check.flow in absent:
            yield HealthCheckResult(check, is_absent=True)
            continue
        try:
            unread = tuple(one.process for one in account.processes()[1]) if check.of_processes else ()
            yield HealthCheckResult(check, tuple(_folded(check.find(account, now))), unread=unread)
        except KeyError as error:  # the deployed template is older, and lacks a function, queue or attribute
            why = f"there is no {error.args[0]}"
            yield HealthCheckResult(check, (Finding("bad", f"not checked: {why}", DEPLOY),), error=why)
        except Exception as error:
            if not is_failure(error):
                raise
            why = failure_text(error)
            yield HealthCheckResult(check, (Finding("warn", f"not checked: {why}"),), error=why)
