"""Which message goes out when, and when the token is killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.emulator.chat_service import Request
from dev.scenarios.token.course import Course, Standing, healed
from dev.scenarios.token.messages import Message
from tests.chat_run.notes import Log, one_invalidation
from tests.support.waiting import NEVER, wait_until


class Api:
    """Stands for ChatService.invalidate: notes how far the course was at each kill, and heals at once."""

    def __init__(self, heals: bool = True) -> None:
        self.course: Course | None = None
        self.heals = heals
        self.kills: list[Standing] = []
        self.asked = 0

    def kill(self, when: Callable[[Sequence[Request]], bool]) -> float | None:
        self.asked += 1
        log = Log()
        log.ask(9999, 0.0, len(self.kills) + 1)
        if not self.heals or not when(log.requests):
            return None
        assert self.course is not None
        self.kills.append(self.course.standing())
        return float(len(self.kills))


def course(count: int, senders: int, invalidations: int, api: Api) -> Course:
    made = Course([Message(number) for number in range(1, count + 1)], senders, invalidations, api.kill)
    api.course = made
    return made


def send_all(made: Course, senders: int) -> list[int]:
    """Senders that are answered at once; the numbers of the messages in the order in which they went out."""
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
def test_every_message_goes_out_once_and_every_invalidation_is_made(
    messages: int, senders: int, invalidations: int
) -> None:
    api = Api()
    made = course(messages, senders, invalidations, api)
    assert sorted(send_all(made, senders)) == list(range(1, messages + 1))
    assert made.standing() == Standing(messages, messages, messages, invalidations)
    assert [each.token for each in made.invalidations] == list(range(1, invalidations + 1))


@pytest.mark.parametrize(
    ("messages", "senders", "invalidations"), [(200, 50, 5), (600, 50, 5), (6, 50, 5), (51, 9, 50)]
)
def test_invalidations_come_at_even_steps_with_messages_left_for_each(
    messages: int, senders: int, invalidations: int
) -> None:
    api = Api()
    send_all(course(messages, senders, invalidations, api), senders)
    step = messages / (invalidations + 1)
    for number, standing in enumerate(api.kills, 1):
        assert standing.ended >= number * step
        assert standing.sent <= number * step + min(senders, step) / 2 + 1
        assert standing.sent <= messages - (invalidations - number + 1)


def test_at_the_first_invalidation_messages_are_on_the_way() -> None:
    api = Api()
    made = course(200, 50, 5, api)
    out = [made.next() for _ in range(50)]
    for message in out[:34]:
        assert message is not None
        made.end(message, answered=True)
    assert [(kill.sent, kill.ended) for kill in api.kills] == [(50, 34)]


def test_a_message_that_is_ahead_of_its_time_waits() -> None:
    api = Api()
    made = course(20, 4, 1, api)
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
    made = course(6, 50, 5, api)
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


def test_a_token_that_never_heals_ends_the_invalidations_and_not_the_run() -> None:
    api = Api(heals=False)
    made = course(20, 4, 3, api)
    assert len(send_all(made, 4)) == 20
    assert made.invalidations == []


def test_an_unanswered_message_counts_as_ended() -> None:
    made = course(1, 1, 0, Api())
    message = made.next()
    assert message is not None
    made.end(message, answered=False)
    assert made.standing() == Standing(sent=1, ended=1, answered=0, invalidations=0)


def test_a_stop_sends_everybody_home() -> None:
    made = course(20, 4, 1, Api(heals=False))
    for _ in range(12):
        made.next()
    waiting = threading.Thread(target=made.next, daemon=True)
    waiting.start()
    made.stop()
    waiting.join(NEVER)
    assert not waiting.is_alive()
    assert made.next() is None


def test_the_token_has_healed_once_a_newer_one_serves_and_nobody_waits() -> None:
    log = one_invalidation().requests
    assert healed(log, 1, set())


def test_it_has_not_healed_while_only_the_old_token_has_served() -> None:
    assert not healed(one_invalidation().requests[:7], 1, set())


def test_it_has_not_healed_while_a_message_that_met_the_401_is_on_the_way() -> None:
    log = one_invalidation().requests
    assert not healed(log, 1, {Message(4).text})
    assert healed(log, 1, {Message(2).text})


def test_before_the_first_invalidation_somebody_must_have_been_answered() -> None:
    assert not healed(one_invalidation().requests[:1], 0, set())
    assert healed(one_invalidation().requests[:2], 0, set())


def test_waiting_for_the_standing_does_not_disturb() -> None:
    made = course(3, 1, 0, Api())
    wait_until(lambda: made.standing() == Standing(0, 0, 0, 0), "a standing")
