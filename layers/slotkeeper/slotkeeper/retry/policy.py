"""How patiently which kind of failure is tried again. Values only: see plan.py for what is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from slotkeeper.retry.backoff import JITTERS, WAITS, decorrelated, share

Backoff = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full", "equal", "decorrelated"]

# No policy allows more. The ledger keeps a request for as long as one of its messages can turn up, and reckons that
# from MAX_AGE_SECONDS (seconds).
MAX_ATTEMPTS = 100
MAX_AGE_SECONDS = 30 * 86400


@dataclass(frozen=True)
class Rule:
    """How failures of one kind are tried again. The defaults are the built-in policy's.

    Args:
        backoff: how the wait grows with every attempt, counted or not.
        jitter: what is done to the wait, so that requests that failed together do not come back together.
            "decorrelated" grows by itself: from base to three times the wait before, whatever `backoff` says.
        base: seconds; the first wait, before jitter.
        cap: seconds; no wait is longer, except one that the downstream asked for.
        max_attempts: a failure of this kind is the last one if by then so many attempts count, whatever the earlier
            ones failed of.
        max_age: seconds from the start of the first attempt; none is scheduled for a later time. It is not checked when
            an attempt begins: a redriven dead letter has its attempt however old it is.
        counts: False for failures that are nobody's fault and use up no attempt, such as being told to come later.
            Then max_attempts is of no concern; max_age and a number of attempts altogether (plan.py) still bound them.

    Raises:
        ValueError: with the field, its value and what was expected.
    """

    backoff: Backoff = "exponential"
    jitter: Jitter = "full"
    base: float = 30.0
    cap: float = 3600.0
    max_attempts: int = 8
    max_age: float = 86400.0
    counts: bool = True

    def __post_init__(self) -> None:
        self._expect("backoff", self.backoff in get_args(Backoff), f"one of {', '.join(get_args(Backoff))}")
        self._expect("jitter", self.jitter in get_args(Jitter), f"one of {', '.join(get_args(Jitter))}")
        seconds = f"a number of seconds above 0, at most {MAX_AGE_SECONDS} (30 days)"
        for name in ("base", "cap", "max_age"):
            value = getattr(self, name)
            self._expect(name, _is_number(value) and 0 < value <= MAX_AGE_SECONDS, seconds)
        self._expect("cap", self.cap >= self.base, f"at least base, which is {self.base!r}")
        whole = isinstance(self.max_attempts, int) and not isinstance(self.max_attempts, bool)
        attempts = f"a whole number from 1 to {MAX_ATTEMPTS}"
        self._expect("max_attempts", whole and 1 <= self.max_attempts <= MAX_ATTEMPTS, attempts)
        self._expect("counts", isinstance(self.counts, bool), "True or False")

    def delay(self, key: str, attempt: int) -> float:
        """Seconds from the failure of an attempt to the next one; always the same for the same key and attempt.

        Args:
            key: whose attempt it is; what jitter is reckoned from.
            attempt: the number of the attempt that has failed, from 1.
        """
        if self.jitter == "decorrelated":
            return decorrelated(attempt, self.base, self.cap, partial(share, key))
        return JITTERS[self.jitter](WAITS[self.backoff](attempt, self.base, self.cap), share(key, attempt))

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ValueError(f"Rule.{name} must be {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Policy:
    """A rule for every error type that has one of its own, and one for all others."""

    default: Rule = field(default_factory=Rule)
    errors: Mapping[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.default, Rule):
            raise ValueError(f"Policy.default must be a Rule, got {self.default!r}")
        for name, rule in self.errors.items():
            if not (isinstance(name, str) and name and isinstance(rule, Rule)):
                raise ValueError(f"Policy.errors must be names of error types with a Rule each, got {name!r}: {rule!r}")

    def rule_for(self, types: Iterable[str]) -> Rule:
        """The rule of the first type that has one. `types` goes from the most specific to the least."""
        return next((self.errors[name] for name in types if name in self.errors), self.default)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Policy:
        """The policy that a document says which policy.schema.json allows.

        What `default` leaves out is as in the built-in policy; what an error type leaves out is as in this policy's
        default. The built-in policy's error types stay: what it says of them holds until a document says otherwise, so
        that whoever gives RateLimited another wait does not make it count by that.

        Raises:
            ValueError: a rule's values do not go together; the text says whose.
        """
        default = _read("default", Rule(), document.get("default", {}))
        errors = _built_in_errors(default)
        for name, rule in document.get("errors", {}).items():
            errors[name] = _read(f"errors.{name}", errors.get(name, default), rule)
        return cls(default, errors)


def _built_in_errors(default: Rule) -> dict[str, Rule]:
    """Only what goes with any default: no times, which could contradict an operator's."""
    return {
        # Told to come later, the work has not been tried.
        "RateLimited": replace(default, counts=False),
        # Nobody recorded how the attempt ended: its container was lost, or the message takes down whoever works on it.
        # For the first it is tried again; because of the second less often, since each time costs a whole lease.
        "Died": replace(default, max_attempts=min(5, default.max_attempts)),
    }


def _read(where: str, inherited: Rule, fields: Mapping[str, Any]) -> Rule:
    """The rule by its names in JSON: times say their unit there."""
    values = {name.removesuffix("_seconds"): value for name, value in fields.items()}
    if isinstance(values.get("max_attempts"), float):
        values["max_attempts"] = int(values["max_attempts"])  # 8.0 is a whole number to JSON Schema
    try:
        return replace(inherited, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error} (what is left out is inherited)") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


BUILT_IN = Policy.from_document({})
