"""When each message is sent, and when the token is invalidated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.emulator.chat_service import Request
from dev.scenarios.token.message_feed import FeedState, Message, MessageFeed, recovered
from tests.scenarios.token_run import Log, one_invalidation
from tests.support.waiting import NEVER


class Api:
    """In place of ChatService.invalidate: records the feed's state at each invalidation. `recovers`: without delay."""

    def __init__(self, recovers: bool = True) -> None:
        self.feed: MessageFeed | None = None
        self.recovers = recovers
        self.kills: list[FeedState] = []
        self.asked = 0

    def kill(self, when: Callable[[Sequence[Request]], bool]) -> float | None:
        self.asked += 1
        log = Log()
        log.ask(9999, 0.0, len(self.kills) + 1)
        if not self.recovers or not when(log.requests):
            return None
        assert self.feed is not None
        self.kills.append(self.feed.state())
        return float(len(self.kills))


def feed(count: int, senders: int, invalidations: int, api: Api) -> MessageFeed:
    made = MessageFeed([Message(number) for number in range(1, count + 1)], senders, invalidations, api.kill)
    api.feed = made
    return made


def send_all(made: MessageFeed, senders: int) -> list[int]:
    """Send with immediate answers; the messages' numbers in the order of sending."""
    numbers: list[int] = []

    def work(_: int) -> None:
        while (message := made.next()) is not None:
            numbers.append(message.number)
            made.end(message, answered=True)

    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(work, range(senders)))
    return numbers


@pytest.mark.parametrize(
    ("messages", "senders", "invalidations"),
    [(200, 50, 5), (6, 1, 5), (6, 50, 5), (100, 3, 0), (1, 1, 0), (51, 100, 50)],
)
def test_every_message_is_sent_once_and_every_invalidation_is_made(
    messages: int, senders: int, invalidations: int
) -> None:
    api = Api()
    made = feed(messages, senders, invalidations, api)
    assert sorted(send_all(made, senders)) == list(range(1, messages + 1))
    assert made.state() == FeedState(messages, messages, messages, invalidations)
    assert [each.token for each in made.invalidations] == list(range(1, invalidations + 1))


@pytest.mark.parametrize(
    ("messages", "senders", "invalidations"), [(200, 50, 5), (600, 50, 5), (6, 50, 5), (51, 9, 50)]
)
def test_invalidations_come_at_even_steps_with_messages_left_for_each(
    messages: int, senders: int, invalidations: int
) -> None:
    api = Api()
    send_all(feed(messages, senders, invalidations, api), senders)
    step = messages / (invalidations + 1)
    for number, state in enumerate(api.kills, 1):
        assert state.ended >= number * step
        assert state.sent <= number * step + min(senders, step) / 2 + 1
        assert state.sent <= messages - (invalidations - number + 1)


def test_messages_are_in_flight_at_the_first_invalidation() -> None:
    api = Api()
    made = feed(200, 50, 5, api)
    out = [made.next() for _ in range(50)]
    for message in out[:34]:
        assert message is not None
        made.end(message, answered=True)
    assert [(kill.sent, kill.ended) for kill in api.kills] == [(50, 34)]


def test_a_message_waits_if_too_many_were_sent_before_the_next_invalidation() -> None:
    api = Api()
    made = feed(20, 4, 1, api)
    first = [made.next() for _ in range(12)]
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(made.next)
        with pytest.raises(TimeoutError):
            ahead.result(0.2)
        for message in first[:9]:
            assert message is not None
            made.end(message, answered=True)
        assert (api.kills, ahead.done()) == ([], False)
        tenth = first[9]
        assert tenth is not None
        made.end(tenth, answered=True)
        assert ahead.result() == Message(13)


def test_the_last_message_waits_for_the_last_invalidation() -> None:
    api = Api()
    made = feed(6, 50, 5, api)
    for _ in range(4):
        message = made.next()
        assert message is not None
        made.end(message, answered=True)
    fifth = made.next()
    assert fifth is not None
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(made.next)
        with pytest.raises(TimeoutError):
            last.result(0.2)
        made.end(fifth, answered=True)
        assert last.result() == Message(6)
    assert len(api.kills) == 5


def test_a_token_that_never_recovers_ends_the_invalidations_and_not_the_run() -> None:
    api = Api(recovers=False)
    made = feed(20, 4, 3, api)
    assert len(send_all(made, 4)) == 20
    assert made.invalidations == []


def test_an_unanswered_message_counts_as_ended() -> None:
    made = feed(1, 1, 0, Api())
    message = made.next()
    assert message is not None
    made.end(message, answered=False)
    assert made.state() == FeedState(sent=1, ended=1, answered=0, invalidations=0)


def test_a_stop_ends_every_wait() -> None:
    made = feed(20, 4, 1, Api(recovers=False))
    for _ in range(12):
        made.next()
    waiting = threading.Thread(target=made.next, daemon=True)
    waiting.start()
    made.stop()
    waiting.join(NEVER)
    assert not waiting.is_alive()
    assert made.next() is None


@pytest.mark.parametrize(
    ("entries", "invalidated", "in_flight", "expected"),
    [
        pytest.param(9, 1, set(), True, id="a newer token is in use"),
        pytest.param(7, 1, set(), False, id="only the old token was used"),
        pytest.param(9, 1, {Message(4).text}, False, id="a message that received a 401 is in flight"),
        pytest.param(9, 1, {Message(2).text}, True, id="another message is in flight"),
        pytest.param(1, 0, set(), False, id="before the first answer"),
        pytest.param(2, 0, set(), True, id="after the first answer"),
    ],
)
def test_recovery_needs_a_newer_token_in_use_and_no_rejected_message(
    entries: int, invalidated: int, in_flight: set[str], expected: bool
) -> None:
    assert recovered(one_invalidation().requests[:entries], invalidated, in_flight) == expected
