"""The ways in which a check can end, as exceptions, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_SHOWN = "not shown"


class Refused(Exception):
    """The run cannot start: no such stack, another application's stack, or wrong options."""


class Failed(Exception):
    """AWS did not behave as the system expects, or not in time. The text states the observation."""


class Skipped(Exception):
    """The stack lacks something that the check needs. The text names it."""


class NotShown(Exception):
    """The check succeeded, but nothing happened that could have disproved the fact."""


class Interrupted(Exception):
    """The user interrupted the run; the clean-up follows."""


@dataclass
class CheckResult:
    """The result of one check. `seconds` is its duration with the clean-up."""

    name: str
    status: Status
    found: str
    seconds: float
    left_behind: list[str] = field(default_factory=list)
