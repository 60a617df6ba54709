"""Health checks, their findings, and running them. A check that fails does not end the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper_cli.errors import CommandError

if TYPE_CHECKING:
    from slotkeeper_cli.doctor.facts import Facts

Level = Literal["absent", "ok", "warn", "problem"]
LEVELS: tuple[Level, ...] = ("absent", "ok", "warn", "problem")

# Error codes of a denied call.
_DENIED = ("AccessDenied", "AuthorizationError", "UnauthorizedOperation", "NotAuthorized")


@dataclass(frozen=True)
class Finding:
    """A fault: what the check saw, and what to do."""

    level: Level
    saw: str
    do: str


@dataclass(frozen=True)
class HealthCheck:
    """One check of a stack.

    Args:
        name: used by --only and in JSON.
        about: the statement that is checked.
        find: yields a finding for each fault.
        flow: the optional flow that is checked; a stack without it is not. Empty for the slots.
        of_processes: whether it checks each process, without those that are malformed.
    """

    name: str
    about: str
    find: Callable[[Facts], Iterable[Finding]]
    flow: str = ""
    of_processes: bool = False


@dataclass(frozen=True)
class HealthCheckResult:
    """A check with its findings. `unread`: the malformed processes, which were not checked."""

    check: HealthCheck
    findings: tuple[Finding, ...] = ()
    is_absent: bool = False
    unread: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The statement that was checked."""
        return f"{self.check.about} (not checked: {', '.join(self.unread)})" if self.unread else self.check.about

    @property
    def level(self) -> Level:
        return "absent" if self.is_absent else worst(finding.level for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        data = {"check": self.check.name, "level": self.level, "about": self.about}
        return data | {"findings": [vars(finding) for finding in self.findings]}


def warn(saw: str, do: str) -> Finding:
    """A finding that may be intended, or that becomes a problem later."""
    return Finding("warn", saw, do)


def problem(saw: str, do: str) -> Finding:
    """A finding that must be fixed."""
    return Finding("problem", saw, do)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of the levels; ok if there are none."""
    return max(levels, key=LEVELS.index, default="ok")


def examine(facts: Facts, checks: Iterable[HealthCheck]) -> Iterator[HealthCheckResult]:
    """Run the checks. A check that cannot run becomes a warning with the reason."""
    for check in checks:
        if check.flow and check.flow in facts.not_deployed:
            yield HealthCheckResult(check, is_absent=True)
            continue
        try:
            unread = tuple(one.process for one in facts.malformed) if check.of_processes else ()
            yield HealthCheckResult(check, tuple(check.find(facts)), unread=unread)
        except (ClientError, BotoCoreError, CommandError) as error:
            yield HealthCheckResult(check, (_check_failed(error),))
        except KeyError as error:  # the deployed template is older, and lacks a function, queue or attribute
            missing = problem(f"not checked: there is no {error.args[0]}", "deploy the stack again")
            yield HealthCheckResult(check, (missing,))


def _check_failed(error: Exception) -> Finding:
    if not isinstance(error, ClientError):
        return warn(f"not checked: {error}", "correct the cause, and run this again")
    code = error.response["Error"].get("Code", "")
    if any(part in code for part in _DENIED):
        return warn(
            f"not checked: {error.operation_name} was denied ({code})",
            "allow the operator this call (docs/permissions.md), or use a role that has the permission",
        )
    message = error.response["Error"].get("Message", "")
    return warn(f"not checked: {error.operation_name} failed with {code}: {message}", "run this again")
