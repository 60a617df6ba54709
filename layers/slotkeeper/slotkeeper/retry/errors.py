"""What work raises, and what the planner is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

# In characters. A dead letter and the ledger's row carry a reason for every attempt.
MAX_REASON_CHARACTERS = 500

_ROOTS = (Exception, BaseException, object)


class Retryable(Exception):
    """This attempt failed and a later one may not. Subclass it to name an error type that a policy has a rule for.

    Args:
        retry_after: seconds that the downstream asked to be left in peace for, as a number or as a header's text; they
            win over the policy's own wait. What is no number of seconds is ignored.
    """

    retry_after: float | str | None = None  # for a subclass with a constructor of its own

    def __init__(self, reason: str = "", *, retry_after: float | str | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Poison(Exception):
    """No attempt can ever succeed: the message is set aside at once, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


@dataclass(frozen=True)
class Failure:
    """How an attempt ended that did not succeed.

    Args:
        types: its names, from the most specific to the least; a policy's rule is found by them.
        reason: for people; not empty.
        retry_after: as the downstream said it, in seconds and unchecked.
        final: no attempt can ever succeed.
        counts: False for a failure that uses up no attempt, whatever the policy says.
    """

    types: tuple[str, ...]
    reason: str
    retry_after: float | str | None = None
    final: bool = False
    counts: bool = True

    @classmethod
    def of(cls, exception: BaseException) -> Failure:
        """Any exception that work raised. What AWS answered goes by its error code first: `ThrottlingException`."""
        names = [kind.__name__ for kind in type(exception).__mro__ if kind not in _ROOTS]
        if isinstance(exception, ClientError):
            names.insert(0, exception.response.get("Error", {}).get("Code", ""))
        return cls(
            types=tuple(dict.fromkeys(name for name in names if name)),
            reason=_reason(exception),
            retry_after=exception.retry_after if isinstance(exception, Retryable) else None,
            final=isinstance(exception, Poison),
        )

    def to_record(self) -> dict[str, Any]:
        """The fields as JSON can hold them; `from_record` reads them."""
        return {**vars(self), "retry_after": None if self.retry_after is None else str(self.retry_after)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Failure:
        return cls(**{**record, "types": tuple(record["types"])})


def _reason(exception: BaseException) -> str:
    # What cannot be printed becomes a space: SQS refuses most control characters (API Reference, SendMessage), and
    # half of a surrogate pair, which a file's name may hold, is no text to any service.
    text = "".join(character if character.isprintable() else " " for character in str(exception)).strip()
    name = type(exception).__name__
    if text and type(exception) in (Poison, Retryable):
        return text[:MAX_REASON_CHARACTERS]  # these two names say nothing that the code does not
    return (f"{name}: {text}" if text else name)[:MAX_REASON_CHARACTERS]
