"""The result of a check of a history of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slotkeeper_cli.formatting import count

MAX_EXAMPLES = 10


class Result(StrEnum):
    """Whether the records show that a guarantee held."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class CheckResult:
    """One check of a history.

    Attributes:
        id: one word, by which callers name the check.
        claim: the guarantee in a sentence.
        finding: the statement of the records, in a sentence.
        numbers: the same as data.
        examples: what fails, at most MAX_EXAMPLES.
    """

    id: str
    claim: str
    result: Result
    finding: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    examples: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        return {**vars(self), "numbers": dict(self.numbers), "examples": list(self.examples)}


@dataclass
class Found:
    """What one check has found so far: what fails, and what cannot be decided."""

    fails: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def conclude(
    name: str, claim: str, found: Found, finding: str, numbers: Mapping[str, Any], *, shown: bool = True
) -> CheckResult:
    """The result: a violation counts more than an undecided case, and that more than a guarantee that held."""
    result = Result.HOLDS if shown else Result.NOT_SHOWN
    if found.unknown:
        result = Result.NOT_SHOWN
        finding = "; ".join(filter(None, [finding, *first_of(found.unknown, 3)]))
    if found.fails:
        result = Result.FAILS
        finding = f"{count(len(found.fails), 'violation')}; {finding}"
    return CheckResult(name, claim, result, finding, numbers, first_of(found.fails, MAX_EXAMPLES))


def first_of(texts: Sequence[str], most: int) -> list[str]:
    """The first of some texts, and how many more there are."""
    more = len(texts) - most
    return [*texts[:most], *([f"and {more:,} more"] if more > 0 else [])]
