"""Facts about AWS that no source records: a question, AWS's real answer, and whether the product's assumption holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from dev.smoke.check_results import CheckEnded, Failed, NotShown, Skipped

if TYPE_CHECKING:
    from dev.smoke.check_context import CheckContext


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
    ask: makes the calls and returns the answer, which is written to the report with account numbers masked. None for a
        fact that only a person can show, as `manually` describes.
    agrees: whether an answer is as assumed.
    not_here: why the embedded AWS cannot show the fact. There it is not tried, and never counted as shown.
    """

    name: str
    asks: str
    expects: str
    depends: str
    ask: Callable[[CheckContext], Any] | None = None
    agrees: Callable[[Any], bool] = bool
    manually: str = ""
    not_here: str = ""


@dataclass(frozen=True)
class FactAnswer:
    """AWS's answer to a question. `means`: what to change if it is different, or why there is no answer."""

    name: str
    verdict: Verdict
    answer: Any
    means: str = ""


def ask_all(facts: Sequence[Fact]) -> Callable[[CheckContext], str]:
    """A check that asks all `facts`. It fails if an answer is different."""

    def carry_out(context: CheckContext) -> str:
        for number, fact in enumerate(facts, 1):
            if context.stopped.is_set():
                raise Skipped("interrupted")
            context.say(f"{number} of {len(facts)}, {fact.name}: {fact.asks}")
            context.answers.append(_judged(fact, context))
            context.step()
        return _summary(context.answers)

    return carry_out


def _judged(fact: Fact, context: CheckContext) -> FactAnswer:
    if fact.ask is None:
        return FactAnswer(fact.name, Verdict.NOT_SHOWN, None, f"only manually: {fact.manually}")
    if fact.not_here and context.stack.local:
        return FactAnswer(fact.name, Verdict.NOT_TRIED, None, fact.not_here)
    try:
        answer = fact.ask(context)
    except (CheckEnded, ClientError, BotoCoreError) as error:
        return FactAnswer(fact.name, Verdict.NOT_SHOWN, None, str(error))
    except Exception as error:  # an error of this program shows nothing about AWS; the other facts are still asked
        return FactAnswer(fact.name, Verdict.NOT_SHOWN, None, f"unexpected error: {type(error).__name__}: {error}")
    if _agrees(fact, answer):
        return FactAnswer(fact.name, Verdict.AS_ASSUMED, answer)
    return FactAnswer(fact.name, Verdict.DIFFERENT, answer, fact.depends)


def _agrees(fact: Fact, answer: Any) -> bool:
    """Whether an answer is as assumed. An answer of another form is not."""
    try:
        return bool(fact.agrees(answer))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False


def _summary(answers: Iterable[FactAnswer]) -> str:
    """The counts by verdict. Raises Failed or NotShown unless every fact that was tried is as assumed."""
    names = {verdict: [each.name for each in answers if each.verdict is verdict] for verdict in Verdict}
    text = "; ".join(
        f"{len(named)} {verdict}" + ("" if verdict is Verdict.AS_ASSUMED else f" ({', '.join(named)})")
        for verdict, named in names.items()
        if named
    )
    if names[Verdict.DIFFERENT]:
        raise Failed(text)
    if names[Verdict.NOT_SHOWN] or not names[Verdict.AS_ASSUMED]:
        raise NotShown(text)
    return text


def refusal_of(call: Callable[[], Any]) -> dict[str, str]:
    """The error with which AWS refuses a call, or an empty object if it accepts it."""
    try:
        call()
    except ClientError as error:
        return {"error": error.response["Error"]["Code"], "message": error.response["Error"].get("Message", "")}
    return {}
