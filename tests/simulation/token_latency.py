"""Instances that share one token, on a simulated clock on which every call takes time.

The worlds (token_world.py) try every order of calls. Here the latencies determine the order, since the latencies and
`Timing` decide together whether a token is refreshed. Nothing really sleeps.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import greenlet

from slotkeeper.chatbot.service import ANSWER_SECONDS
from slotkeeper.token import (
    AuthenticationNotAttempted,
    AuthenticationRefused,
    SharedToken,
    Timing,
    TokenError,
    TokenTable,
    Unauthorized,
)
from slotkeeper.token.timing import KnownToken
from tests.simulation.aws import dynamodb
from tests.simulation.frozen import freeze, thaw
from tests.simulation.token_actors import NAME, TOKENS, Clocks, outside_only
from tests.simulation.transcript import LOST, Answer, Outside, Question

NOW = 1_800_000_000.0
DYNAMODB, CREDENTIALS = 0.01, 0.05  # seconds for one DynamoDB call, and to read the credentials


@dataclass(frozen=True)
class Latencies:
    """Seconds that the API takes for each call.

    Attributes:
        effect_first: `POST /auth` invalidates the old token when it arrives, not at its end.
    """

    probe: float
    post: float
    answer: float
    effect_first: bool = True


@dataclass(frozen=True)
class Message:
    """A message to an instance, `at` these seconds. If not `allowed`, the API answers 401 with any token."""

    at: float
    allowed: bool = True


@dataclass
class Course:
    """The events of a run. `ends`: instance, message, outcome, and the seconds that it took."""

    posts: int = 0
    probes: int = 0
    ends: list[tuple[str, Message, str, float]] = field(default_factory=list)

    @property
    def outcomes(self) -> Counter[str]:
        """The outcomes of the allowed messages."""
        return Counter(outcome for _, message, outcome, _ in self.ends if message.allowed)


class _Exact(Clocks):
    """Clocks whose pauses have the length that the code passes."""

    def sleep(self, seconds: float) -> None:
        self._outside.sleep(seconds)


class _Api:
    """The API as an instance calls it, over HTTP with a deadline (http_client.py)."""

    def __init__(self, outside: Outside, own_failure: str) -> None:
        self._outside = outside
        self._own_failure = own_failure

    def authenticate(self, seconds: float) -> str:
        self._outside.sleep(CREDENTIALS)
        if self._own_failure:
            raise AuthenticationNotAttempted(self._own_failure)
        try:
            return str(self._ask("post", seconds - CREDENTIALS))
        except TimeoutError:
            raise AuthenticationRefused("no answer in time") from None

    def is_valid(self, token: str, seconds: float) -> bool:
        return self._ask("probe", seconds, token) is not None

    def answer(self, token: str, allowed: bool) -> None:
        if self._ask("answer", ANSWER_SECONDS, token) is None or not allowed:
            raise Unauthorized

    def _ask(self, what: str, seconds: float, token: str = "") -> Any:
        answer = self._outside.ask(Question("chat", what, freeze({"seconds": seconds, "token": token})))
        if answer == LOST.error:
            raise TimeoutError
        return answer


class _Play:
    def __init__(self, latencies: Latencies, timing: Timing, within: float) -> None:
        self.course = Course()
        self.now = NOW
        self.live = "t1"
        self._latencies = latencies
        self._timing = timing
        self._within = within
        self._tables = dynamodb.tables(
            tokens=[
                {
                    "token_name": {"S": NAME},
                    "access_token": {"S": "t1"},
                    "generation": {"N": "1"},
                    "stored_at": {"N": f"{NOW - 60:.3f}"},
                }
            ]
        )
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._queued = 0

    def at(self, moment: float, event: Callable[[], None]) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (moment, self._queued, event))

    def begin(self, name: str, messages: tuple[Message, ...], own_failure: str) -> None:
        outside = Outside(())
        outside.suspends = True
        code = greenlet(self._instance)

        def ask(question: Any) -> None:
            if question is not None:
                self._answer(question, lambda answer: ask(code.switch(answer)))

        self.at(NOW, lambda: ask(code.switch(outside, name, messages, own_failure)))

    def run(self) -> None:
        while self._queue:
            self.now, _, event = heapq.heappop(self._queue)
            event()

    def revoke(self) -> None:
        self.live = ""

    def _instance(self, outside: Outside, name: str, messages: tuple[Message, ...], own_failure: str) -> None:
        with outside_only(outside, name, _Exact) as clocks:
            api = _Api(outside, own_failure)
            token = SharedToken(
                TokenTable(outside.client("dynamodb"), TOKENS),
                NAME,
                api.authenticate,
                still_valid=api.is_valid,
                timing=self._timing,
                clock=clocks.wall,
            )
            token._cached = KnownToken("t1", 1)
            for message in messages:
                if self.now < NOW + message.at:
                    outside.sleep(NOW + message.at - self.now)
                started = self.now
                outcome = "answer"
                try:
                    token.call(lambda value, allowed=message.allowed: api.answer(value, allowed), self._within)  # type: ignore[misc]
                except TokenError as error:
                    outcome = type(error).__name__
                except TimeoutError:
                    outcome = "no answer"
                self.course.ends.append((name, message, outcome, self.now - started))

    def _answer(self, question: Question, resume: Callable[[Answer], None]) -> None:
        match question.service, question.operation:
            case "actor", "clocks":
                resume(Answer((self.now, self.now)))
            case "actor", "sleep":
                self.at(self.now + question.parameters, lambda: resume(Answer()))
            case "dynamodb", _:
                self._tables, answer = dynamodb.perform(self._tables, question.operation, question.parameters)
                self.at(self.now + DYNAMODB, lambda: resume(answer))
            case "chat", _:
                self._chat(question.operation, thaw(question.parameters), resume)

    def _chat(self, what: str, asked: dict[str, Any], resume: Callable[[Answer], None]) -> None:
        latency: float = getattr(self._latencies, what)
        answers: list[str | None] = []

        def take_effect() -> None:
            if what == "post":
                self.course.posts += 1
                self.live = f"t{self.course.posts + 1}"
                answers.append(self.live)
            else:
                self.course.probes += what == "probe"
                answers.append("yes" if asked["token"] == self.live else None)

        if what != "post" or self._latencies.effect_first:
            take_effect()
        else:
            self.at(self.now + latency, take_effect)
        if latency > asked["seconds"]:
            self.at(self.now + asked["seconds"], lambda: resume(Answer(LOST.error)))
        else:
            self.at(self.now + latency, lambda: resume(Answer(answers[0])))


def play(
    latencies: Latencies,
    timing: Timing,
    instances: tuple[tuple[Message, ...], ...],
    *,
    revoked_at: float | None = None,
    within: float,
    own_failure: str = "",
) -> Course:
    """Run instances with the token `t1` in their caches. Each handles its messages one after the other.

    Args:
        revoked_at: seconds after which the API revokes the live token without a POST.
        within: seconds that each message allows for its tokens.
        own_failure: the failure that keeps the first instance from requesting tokens.
    """
    made = _Play(latencies, timing, within)
    if revoked_at is not None:
        made.at(NOW + revoked_at, made.revoke)
    for number, messages in enumerate(instances):
        made.begin("abcdef"[number], messages, "" if number else own_failure)
    made.run()
    return made.course
