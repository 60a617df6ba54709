"""The exceptions that work raises, and the failure that the planner receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

# Short, because a dead-letter message and the ledger's row contain a reason for every attempt.
MAX_REASON_CHARACTERS = 500

_ROOTS = (Exception, BaseException, object)


class Retryable(Exception):
    """This attempt failed and a later one may succeed. Subclass it to name an error type for a policy's rule.

    Args:
        retry_after: seconds to wait, as the downstream requested them, as a number or as a header's text. They replace
            the policy's wait. A value that is not a number is ignored.
    """

    retry_after: float | str | None = None  # for a subclass with its own constructor

    def __init__(self, reason: str = "", *, retry_after: float | str | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Poison(Exception):
    """No attempt can ever succeed: the message is dead-lettered immediately, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


@dataclass(frozen=True)
class Failure:
    """How an attempt failed.

    Args:
        types: the names of the error type, from the most specific to the least. A policy's rule is found by them.
        reason: for people; not empty.
        retry_after: seconds, as the downstream sent them, not validated.
        final: no attempt can ever succeed.
        counts: False for a failure that uses up no attempt under any policy.
    """

    types: tuple[str, ...]
    reason: str
    retry_after: float | str | None = None
    final: bool = False
    counts: bool = True

    @classmethod
    def of(cls, exception: BaseException) -> Failure:
        """Create a failure from an exception. A ClientError has its AWS error code, `ThrottlingException`, as type."""
        names = [kind.__name__ for kind in type(exception).__mro__ if kind not in _ROOTS]
        if isinstance(exception, ClientError):
            names.insert(0, exception.response.get("Error", {}).get("Code", ""))
        return cls(
            types=tuple(dict.fromkeys(name for name in names if name)),
            reason=_reason(exception),
            retry_after=exception.retry_after if isinstance(exception, Retryable) else None,
            final=isinstance(exception, Poison),
        )

    @property
    def type(self) -> str:
        """The name of the most specific error type; empty if there is none."""
        return next(iter(self.types), "")

    def to_record(self) -> dict[str, Any]:
        """Return the fields as values that JSON can encode. `from_record` reads them."""
        return {**vars(self), "retry_after": None if self.retry_after is None else str(self.retry_after)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Failure:
        return cls(**{**record, "types": tuple(record["types"])})


def _reason(exception: BaseException) -> str:
    # Replace characters that cannot be printed: SQS refuses most control characters (API Reference, SendMessage), and
    # no service accepts half of a surrogate pair, which a file name may contain.
    text = "".join(character if character.isprintable() else " " for character in str(exception)).strip()
    name = type(exception).__name__
    if text and type(exception) in (Poison, Retryable):
        return text[:MAX_REASON_CHARACTERS]  # these two class names add nothing to the code
    return (f"{name}: {text}" if text else name)[:MAX_REASON_CHARACTERS]
