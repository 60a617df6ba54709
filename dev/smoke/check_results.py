"""How a check can end, as exceptions and as a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_SHOWN = "not shown"


class Refused(Exception):
    """Nothing can be checked: no such stack, not one of Slotkeeper's, wrong options."""


class Failed(Exception):
    """AWS did something else than the system builds on, or did not do it in time. The text states what was seen."""


class Skipped(Exception):
    """The check needs something that the stack does not have. The text names it."""


class NotShown(Exception):
    """All went well, and yet nothing happened that could have shown the fact to be wrong."""


class Interrupted(Exception):
    """The user asked for the end: clean up."""


@dataclass
class CheckResult:
    """The result of one check. `seconds` is how long it took, its clean-up included."""

    name: str
    status: Status
    found: str
    seconds: float
    left_behind: list[str] = field(default_factory=list)
