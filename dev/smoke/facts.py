"""A fact about AWS: a question, AWS's real answer, and whether the product's assumption holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from dev.smoke.check_context import CheckContext

HAND_OFF = 10.0  # seconds for what an event or a message brings about; the janitor's next run takes up to a minute
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")


class Refused(Exception):
    """The run cannot start: no such stack, another application's stack, or wrong options."""


class Failed(Exception):
    """AWS did not behave as the product assumes, or not in time. The text states the observation."""


class NotShown(Exception):
    """Nothing happened that could have disproved the fact, or something is missing. The text states what."""


class Verdict(StrEnum):
    AS_ASSUMED = "as assumed"
    DIFFERENT = "different"
    NOT_SHOWN = "could not be shown"
    NOT_TRIED = "not tried here"


@dataclass(frozen=True)
class Fact:
    """A question to AWS.

    asks, expects: the question, and the answer that the product assumes, as sentences.
    depends: what in the product depends on the answer, and what to change if AWS answers otherwise.
    ask: makes the calls and returns the answer, which is written to the report with account numbers masked.
    agrees: whether an answer is as assumed. None: `ask` raises Failed for another answer.
    not_here: why the embedded AWS cannot show the fact. There it is not tried, and never counted as shown.
    """

    name: str
    asks: str
    expects: str
    depends: str
    ask: Callable[[CheckContext], Any]
    agrees: Callable[[Any], bool] | None = None
    not_here: str = ""

    def agrees_with(self, answer: Any) -> bool:
        """An answer of another form is not as assumed."""
        try:
            return self.agrees is None or bool(self.agrees(answer))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False


@dataclass(frozen=True)
class FactAnswer:
    """AWS's answer to a question. `means`: what to change if it is different, or why there is no answer."""

    fact: Fact
    verdict: Verdict
    answer: Any = None
    means: str = ""


@dataclass
class CheckResult:
    """The answers to the facts of one check, and what its clean-up could not remove."""

    name: str
    answers: list[FactAnswer] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)


def judged(fact: Fact, context: CheckContext) -> FactAnswer:
    if fact.not_here and context.stack.local:
        return FactAnswer(fact, Verdict.NOT_TRIED, means=fact.not_here)
    try:
        answer = fact.ask(context)
    except NotShown as error:
        return FactAnswer(fact, Verdict.NOT_SHOWN, means=str(error))
    except Exception as error:  # the other facts are still asked
        known = isinstance(error, Failed | ClientError | BotoCoreError)
        text = str(error) if known else f"unexpected error: {type(error).__name__}: {error}"
        if fact.agrees or _is_denied(error):  # no answer
            return FactAnswer(fact, Verdict.NOT_SHOWN, means=text)
        return FactAnswer(fact, Verdict.DIFFERENT, text, fact.depends)
    if fact.agrees_with(answer):
        return FactAnswer(fact, Verdict.AS_ASSUMED, answer)
    return FactAnswer(fact, Verdict.DIFFERENT, answer, fact.depends)


def refusal_of(call: Callable[[], Any]) -> dict[str, str]:
    """The error with which AWS refuses a call, or an empty object. Raises it if the user lacks the permission."""
    try:
        call()
    except ClientError as error:
        if _is_denied(error):
            raise
        return {"error": error.response["Error"]["Code"], "message": error.response["Error"].get("Message", "")}
    return {}


def _is_denied(error: Exception) -> bool:
    return isinstance(error, ClientError) and error.response["Error"]["Code"] in _DENIED
