"""Records of `make run-chatbot` with figures that are easy to compute. Seconds; the first message is sent at 1000."""

from __future__ import annotations

from typing import Any

from dev.emulator.chat_service import Request, TokenLife, answer_to
from dev.scenarios.token.messages import Delivery, Message
from dev.scenarios.token.token_figures import Parameters, build
from dev.scenarios.token.token_records import Records, Stored
from tests.scenarios.reports import run_of

ORIGIN = 1000.0


class Log:
    """The API's log, in the order of arrival. Instants count from ORIGIN."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def add(self, path: str, began: float, ended: float, status: int | None, token: int | None, **more: Any) -> None:
        method = "GET" if path == "/me" else "POST"
        at, number = ORIGIN + began, len(self.requests) + 1
        self.requests.append(Request(number, method, path, at, token, status=status, ended=ORIGIN + ended, **more))

    def auth(self, began: float, token: int | None, status: int | None = 200) -> None:
        """Takes half a second."""
        self.add("/auth", began, began + 0.5, status, token)

    def ask(self, number: int, began: float, token: int, status: int = 200) -> None:
        """The message's `POST /answers`; 0.1 s, a 401 takes no time."""
        took = 0.1 if status == 200 else 0.0
        self.add("/answers", began, began + took, status, token, text=Message(number).text)


def delivery(number: int, sent: float, ended: float, **refused: Any) -> Delivery:
    """With the correct answer, unless `refused` has others."""
    message = Message(number)
    fields: dict[str, Any] = {"status": 200, "answer": answer_to(message.text)} | refused
    return Delivery(message, ORIGIN + sent, ORIGIN + ended, **fields)


def one_invalidation() -> Log:
    """m1 meets no token, m2 a valid one, m3 and m4 the invalid one; one instance refreshes it, at 3.1 s."""
    log = Log()
    log.auth(0.1, 1)
    log.ask(1, 0.7, 1)
    log.ask(2, 1.0, 1)
    log.ask(3, 3.0, 1, 401)
    log.ask(4, 3.05, 1, 401)
    log.add("/me", 3.06, 3.07, 401, 1)
    log.auth(3.1, 2)
    log.ask(3, 3.7, 2)
    log.ask(4, 4.05, 2)
    return log


def records(**changes: Any) -> Records:
    """The run of `one_invalidation`, at 2.0 s, which satisfies every claim."""
    fields: dict[str, Any] = {
        "deliveries": [delivery(1, 0.0, 0.9), delivery(2, 0.95, 1.15), delivery(3, 2.9, 3.9), delivery(4, 2.95, 4.2)],
        "log": one_invalidation().requests,
        "tokens": [TokenLife(1, ORIGIN + 0.1, ORIGIN + 2.0, "invalidate"), TokenLife(2, ORIGIN + 3.1)],
        "stored": Stored(token=2, live=True, generation=2, locked=False),
        "metrics": {"ColdStart": 2, "TokenRefreshes": 2},
    }
    return Records(**(fields | changes))


def two_invalid_tokens() -> Records:
    """`records`, then a second invalidation at 5.0 s, which m5 meets first, in a container that was idle."""
    log = one_invalidation()
    log.ask(5, 5.2, 1, 401)  # the cached token
    log.ask(5, 5.25, 2, 401)  # the stored one
    log.auth(6.0, 3)
    log.ask(5, 6.6, 3)
    calm = records()
    return records(
        deliveries=[*calm.deliveries, delivery(5, 5.1, 6.8)],
        log=log.requests,
        tokens=[calm.tokens[0], TokenLife(2, ORIGIN + 3.1, ORIGIN + 5.0, "invalidate"), TokenLife(3, ORIGIN + 6.0)],
        stored=Stored(token=3, live=True, generation=3, locked=False),
    )


def report(recorded: Records, *, messages: int = 4, senders: int = 2, invalidations: int = 1) -> dict[str, Any]:
    return build(Parameters(messages, senders, invalidations, 0.5), recorded, run_of(run=4.2))
