"""The ways in which a check can end, as exceptions, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dev.smoke.facts import FactAnswer


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_SHOWN = "not shown"


class Refused(Exception):
    """The run cannot start: no such stack, another application's stack, or wrong options."""


class CheckEnded(Exception):
    """A check ended without passing; `status` is its result, and the text is its finding."""

    status: Status


class Failed(CheckEnded):
    """AWS did not behave as the system expects, or not in time. The text states the observation."""

    status = Status.FAILED


class Skipped(CheckEnded):
    """The stack lacks something that the check needs, which the text names, or the user interrupted the run."""

    status = Status.SKIPPED


class NotShown(CheckEnded):
    """The check succeeded, but nothing happened that could have disproved the fact."""

    status = Status.NOT_SHOWN


@dataclass
class CheckResult:
    """The result of one check. `seconds` is its duration with the clean-up, `answers` those to its facts."""

    name: str
    status: Status
    found: str
    seconds: float
    left_behind: list[str] = field(default_factory=list)
    answers: list[FactAnswer] = field(default_factory=list)
