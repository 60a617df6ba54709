"""The retry policy: the rules by which failures of each type are retried, their waits, and the parameter that has it.

plan.py applies the rules. The policy is in SSM Parameter Store. Without a policy that was read, no retry is decided.

Jitter is not random: it is a share computed from the request's key and the attempt's number. So the same question
after a crash has the same answer, and two requests that failed at the same time still retry at different times.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.retry.downstream.health import DownstreamSettings
from slotkeeper.schema import InvalidBody, compile_schema, decode

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

SCHEMA_FILE = Path(__file__).with_name("policy.schema.json")

Backoff = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full", "equal", "decorrelated"]

# The maxima of every policy. The ledger keeps a request for as long as one of its messages can be delivered, and
# computes that time from MAX_AGE_SECONDS.
MAX_ATTEMPTS = 100
MAX_AGE_SECONDS = 30 * 86400
KEEP_SECONDS = 60  # between two reads of the parameter, also after a failed read


@dataclass(frozen=True)
class Rule:
    """How failures of one type are retried. The defaults are those of the built-in policy.

    Args:
        backoff: how the wait grows with every attempt, counted or not.
        jitter: how the wait is varied, so that requests that failed at the same time do not retry at the same time.
            With "decorrelated", each wait is from base to three times the previous wait, and `backoff` is ignored.
        base: seconds; the first wait, before jitter.
        cap: seconds; the maximum wait, except for a wait that the downstream requested (Retry-After).
        max_attempts: a failure of this type ends the request if this many attempts count. Attempts that failed for
            other reasons count too.
        max_age: seconds from the start of the first attempt; no attempt is scheduled for a later time. It is not
            checked when an attempt starts, so a redriven request gets its attempt at any age.
        counts: False if a failure of this type uses up no attempt, such as a rate limit. Then max_attempts does not
            apply; max_age and the total number of attempts (plan.py) do.

    Raises:
        ValueError: a number is not valid. The message contains the field, its value and what was expected.
    """

    backoff: Backoff = "exponential"
    jitter: Jitter = "full"
    base: float = 30.0
    cap: float = 3600.0
    max_attempts: int = 8
    max_age: float = 86400.0
    counts: bool = True

    def __post_init__(self) -> None:
        seconds = f"a number of seconds above 0, at most {MAX_AGE_SECONDS} (30 days)"
        for name in ("base", "cap", "max_age"):  # a schema accepts NaN
            self._expect(name, 0 < getattr(self, name) <= MAX_AGE_SECONDS, seconds)
        self._expect("cap", self.cap >= self.base, f"at least base, which is {self.base!r}")
        self._expect("max_attempts", 1 <= self.max_attempts <= MAX_ATTEMPTS, f"from 1 to {MAX_ATTEMPTS}")

    def delay(self, key: str, attempt: int) -> float:
        """Return the seconds between a failure and the next attempt, always the same for the same key and attempt.

        Args:
            key: the request's id, from which jitter is computed.
            attempt: the number of the attempt that has failed, from 1.
        """
        if self.jitter == "decorrelated":
            return decorrelated(attempt, self.base, self.cap, partial(share, key))
        wait = min(self.cap, WAITS[self.backoff](attempt, self.base))
        fixed = wait * FIXED_SHARES[self.jitter]
        return fixed + (wait - fixed) * share(key, attempt)

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ValueError(f"Rule.{name} must be {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Policy:
    """Rules for named error types, and a default rule for all others.

    `downstream` has the settings of each downstream that `downstreams` does not name.
    """

    default: Rule = field(default_factory=Rule)
    errors: Mapping[str, Rule] = field(default_factory=dict)
    downstream: DownstreamSettings = field(default_factory=DownstreamSettings)
    downstreams: Mapping[str, DownstreamSettings] = field(default_factory=dict)

    def rule_for(self, types: Iterable[str]) -> Rule:
        """Return the rule of the first type that has one. `types`: from the most specific to the least."""
        return next((self.errors[name] for name in types if name in self.errors), self.default)

    def downstream_settings(self, name: str) -> DownstreamSettings:
        """Return the settings of the named downstream."""
        return self.downstreams.get(name, self.downstream)

    @property
    def max_age(self) -> float:
        """The largest max_age of all rules, in seconds: after this no rule retries."""
        return max(rule.max_age for rule in (self.default, *self.errors.values()))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Policy:
        """Create the policy from a document that is valid by policy.schema.json.

        Fields that `default` omits have the values of the built-in policy. Fields that an error type omits have the
        values of its built-in rule, or else of this policy's `default`. So a document that changes only the wait of
        RateLimited does not make it count.

        Raises:
            ValueError: a rule's values contradict each other. The message names the rule.
        """
        default = _read("default", Rule(), document.get("default", {}))
        errors = _built_in_errors(default)
        for name, rule in document.get("errors", {}).items():
            errors[name] = _read(f"errors.{name}", errors.get(name, default), rule)
        downstream = DownstreamSettings().with_document(document.get("downstream", {}))
        downstreams = {name: downstream.with_document(given) for name, given in document.get("downstreams", {}).items()}
        return cls(default, errors, downstream, downstreams)


def _built_in_errors(default: Rule) -> dict[str, Rule]:
    """The built-in rules of error types. They set no times, which could contradict an operator's default."""
    return {
        # The downstream refused the request because of its rate, so the work was not attempted.
        "RateLimited": replace(default, counts=False),
        # It refused the credentials, which an operator must renew. With counted attempts an expired credential would
        # dead-letter every request of the queue within hours.
        "CredentialsRefused": replace(default, counts=False),
        # No result was recorded: the container was lost, or the message crashes every worker. Because of the first the
        # request is retried; because of the second fewer times, since each attempt costs a whole lease.
        "Died": replace(default, max_attempts=min(5, default.max_attempts)),
    }


def _read(where: str, inherited: Rule, fields: Mapping[str, Any]) -> Rule:
    """Create a rule from the field names in JSON, which end with the unit: `base_seconds`."""
    values = {name.removesuffix("_seconds"): value for name, value in fields.items()}
    if isinstance(values.get("max_attempts"), float):
        values["max_attempts"] = int(values["max_attempts"])  # 8.0 is a whole number to JSON Schema
    try:
        return replace(inherited, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error} (omitted fields are inherited)") from error


BUILT_IN = Policy.from_document({})


class InvalidPolicy(ValueError):
    """A parameter's value that is not a valid policy. The message states the fault and the expected form."""


class PolicyUnavailable(Exception):
    """This container has not read a policy yet. The message states why the last read failed."""


@dataclass
class PolicyParameter:
    """The policy in a parameter, read again after KEEP_SECONDS. After a failed read the last policy stays in use.

    Powertools' SSMProvider is not used, because it does not cache failures: with it, every message would read a
    parameter that is missing or throttled.

    Args:
        name: the parameter's name, as GetParameter accepts it.
        on_invalid: receives, once per failed read, why it failed and what happens next.
        clock: monotonic seconds.
    """

    ssm: SSMClient
    name: str
    _: KW_ONLY
    on_invalid: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._policy: Policy | None = None
        self._unread = ""
        self._read_at = -inf

    def latest(self) -> Policy:
        """Return the policy that was read last.

        Raises:
            PolicyUnavailable: no read has succeeded yet. The built-in policy is not used instead, because it could
                dead-letter a request that the operator's policy would retry.
        """
        now = self.clock()
        if now - self._read_at >= KEEP_SECONDS:
            self._read_at = now
            self._read()
        if self._policy is None:
            raise PolicyUnavailable(self._unread)
        return self._policy

    def latest_for_downstream(self) -> Policy:
        """Return the policy for the settings of downstreams: the built-in one if no read has succeeded yet.

        Unlike `latest` it decides nothing that a later policy cannot undo.
        """
        try:
            return self.latest()
        except PolicyUnavailable:
            return BUILT_IN

    def _read(self) -> None:
        try:
            self._policy = parse_policy(self.ssm.get_parameter(Name=self.name)["Parameter"]["Value"])
        except InvalidPolicy as error:
            self._report(f"is not valid: {error}")
        except ClientError as error:
            self._report(f"cannot be read: {error.response.get('Error', {}).get('Code', 'an error without a code')}")
        except BotoCoreError as error:
            self._report(f"cannot be read: {error}")

    def _report(self, what: str) -> None:
        self._unread = f"retry policy: SSM parameter {self.name} {what}"
        follows = "the policy read before is used" if self._policy else "failed attempts wait until a policy is read"
        self.on_invalid(f"{self._unread}; {follows}, and the parameter is read again after {KEEP_SECONDS} s")


class BuiltInPolicy:
    """The built-in policy, for a consumer without a parameter."""

    def latest(self) -> Policy:
        return BUILT_IN

    latest_for_downstream = latest


def parse_policy(text: str) -> Policy:
    """Parse a parameter's value.

    Raises:
        InvalidPolicy: the value is not JSON, does not match policy.schema.json, or its values contradict each other.
    """
    try:
        document = decode(text, _validator())
    except InvalidBody as error:
        raise InvalidPolicy(f"value{str(error).removeprefix('body')}") from error
    try:
        return Policy.from_document(document)
    except ValueError as error:
        raise InvalidPolicy(f"value.{error}") from error


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)


# The wait before jitter, by the number of the failed attempt and the base. 2.0 ** 1024 is an OverflowError; long before
# it, any cap is reached.
WAITS: Mapping[str, Callable[[int, float], float]] = {
    "exponential": lambda attempt, base: base * 2.0 ** min(attempt - 1, 1000),
    "linear": lambda attempt, base: base * attempt,
    "fixed": lambda _attempt, base: base,
}
# The part of the wait that a jitter leaves unchanged. The rest is multiplied by the share.
FIXED_SHARES: Mapping[str, float] = {"none": 1.0, "full": 0.0, "equal": 0.5}


def decorrelated(attempt: int, base: float, cap: float, share_of: Callable[[int], float]) -> float:
    """Return a value from base to three times the previous wait. The waits are computed again from the first one, base.

    Args:
        share_of: returns the share for an attempt's number.
    """
    wait = base
    for number in range(1, attempt + 1):
        wait = min(cap, base + (3 * wait - base) * share_of(number))
    return wait


def share(key: str, attempt: int) -> float:
    """Return a value in [0, 1), uniform over keys and attempts, and always the same for the same key and attempt."""
    digest = hashlib.sha256(f"{attempt} {key}".encode()).digest()
    return (int.from_bytes(digest[:8]) >> 11) / 2**53  # 53 bits, as a float has: rounding cannot give 1
