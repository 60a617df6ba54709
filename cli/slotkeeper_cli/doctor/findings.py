"""What a check is, what it finds, and how all of them are gone through: none ends the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper_cli.errors import CommandError

if TYPE_CHECKING:
    from slotkeeper_cli.doctor.facts import Facts

Level = Literal["absent", "ok", "warn", "problem"]
LEVELS: tuple[Level, ...] = ("absent", "ok", "warn", "problem")

# By these a service says that the caller may not look.
_DENIED = ("AccessDenied", "AuthorizationError", "UnauthorizedOperation", "NotAuthorized")


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: what was seen, and what to do about it."""

    level: Level
    saw: str
    do: str


@dataclass(frozen=True)
class Check:
    """One look.

    Args:
        name: for scripts.
        about: what is looked at, for people.
        look: what is amiss; nothing if all is well.
        flow: the flow that it is about; a stack without this flow is not checked. Empty for the slots.
    """

    name: str
    about: str
    look: Callable[[Facts], Iterable[Finding]]
    flow: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a check."""

    check: Check
    findings: tuple[Finding, ...] = ()
    is_absent: bool = False

    @property
    def level(self) -> Level:
        return "absent" if self.is_absent else worst(finding.level for finding in self.findings)


def warn(saw: str, do: str) -> Finding:
    """What may be meant so, or will be amiss before long."""
    return Finding("warn", saw, do)


def problem(saw: str, do: str) -> Finding:
    """What somebody has to mend."""
    return Finding("problem", saw, do)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of these; of none, ok."""
    return max(levels, key=LEVELS.index, default="ok")


def examine(facts: Facts, checks: Iterable[Check]) -> Iterator[Result]:
    """Goes through the checks. One that cannot look warns, and says why it cannot."""
    for check in checks:
        if check.flow and check.flow in facts.not_deployed:
            yield Result(check, is_absent=True)
            continue
        try:
            yield Result(check, tuple(check.look(facts)))
        except (ClientError, BotoCoreError, CommandError) as error:
            yield Result(check, (_not_looked(error),))
        except KeyError as error:  # a function, queue or attribute that this version knows, and the stack has not
            missing = problem(f"not looked at: there is no {error.args[0]}", "deploy the stack again")
            yield Result(check, (missing,))


def _not_looked(error: Exception) -> Finding:
    if not isinstance(error, ClientError):
        return warn(f"not looked at: {error}", "see what the error says")
    code = error.response["Error"].get("Code", "")
    if any(part in code for part in _DENIED):
        return warn(
            f"not looked at: {error.operation_name} was denied ({code})",
            "allow the operator this call (docs/permissions.md), or let somebody look who may",
        )
    told = error.response["Error"].get("Message", "")
    return warn(f"not looked at: {error.operation_name} was answered {code}: {told}", "try again, or see what it says")
