"""Whatever time an API takes, 0 to 4 s for each call, its dead token is refreshed once, and no good one is."""

from __future__ import annotations

import pytest

from slotkeeper.chatbot.token import timing
from slotkeeper.token import Timing
from tests.simulation.token_latency import Course, Latencies, Message, play

SHIPPED = {"the chatbot's": timing(5), "the default": Timing()}
WITHIN = 21.5  # the chatbot's, for the tokens of one message: 28 s, less two that are spared and an answer
FINE = [hundredths / 100 for hundredths in range(0, 401, 10)]
COARSE = [tenths / 10 for tenths in range(0, 41, 5)]

# Three instances with ordinary messages, and one whose messages are answered 401 with any token, which dies at 100 s.
ORDINARY = tuple(tuple(Message(at + later) for at in (0, 30, 99, 100, 130, 170)) for later in (0.0, 0.3, 1.1))
FORBIDDEN = (Message(0.2, False), Message(40, False), Message(100.1, False), Message(140, False))


def played(latencies: Latencies, times: Timing, *, revoked_at: float | None = 100.0) -> Course:
    return play(latencies, times, (FORBIDDEN, *ORDINARY), revoked_at=revoked_at, within=WITHIN)


def broken(course: Course, posts: int) -> str:
    """What is wrong with a course in which so many tokens died."""
    if course.posts != posts:
        return f"{course.posts} POST /auth for {posts} dead tokens"
    if set(course.outcomes) != {"answer"}:
        return f"ordinary messages ended with {dict(course.outcomes)}"
    if any(outcome == "answer" for _, message, outcome, _ in course.ends if not message.allowed):
        return "a message that is not allowed was answered"
    return ""


@pytest.mark.parametrize("effect_first", [True, False], ids=["as it arrives", "at its end"])
@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_t1_one_latency_for_every_call_and_one_refresh(times: Timing, effect_first: bool) -> None:
    violations = {each: broken(played(Latencies(each, each, each, effect_first), times), 1) for each in FINE}
    assert {latency: what for latency, what in violations.items() if what} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_t1_the_probe_and_the_post_each_with_a_latency_of_its_own_and_one_refresh(times: Timing) -> None:
    violations = {
        (probe, post): broken(played(Latencies(probe, post, 0.5), times), 1) for probe in COARSE for post in COARSE
    }
    assert {latency: what for latency, what in violations.items() if what} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_f31_a_message_that_is_always_answered_401_ends_no_token_at_any_latency(times: Timing) -> None:
    violations = {each: broken(played(Latencies(each, each, each), times, revoked_at=None), 0) for each in FINE}
    assert {latency: what for latency, what in violations.items() if what} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_a_failure_of_one_instances_own_costs_the_others_no_message(times: Timing) -> None:
    """It cannot read the credentials, and it is the first to meet each dead token."""
    violations = {}
    for each in FINE:
        course = play(
            Latencies(each, each, each), times, ORDINARY, revoked_at=98.0, within=WITHIN, sick="it cannot read a secret"
        )
        violations[each] = broken(course, 1)
    assert {latency: what for latency, what in violations.items() if what} == {}


def test_an_instance_alone_with_a_failure_of_its_own_ends_each_wait_and_names_it() -> None:
    alone = (tuple(Message(at) for at in (0, 30, 60)),)
    course = play(Latencies(1, 1, 1), timing(5), alone, revoked_at=10.0, within=WITHIN, sick="it cannot read a secret")
    assert [outcome for *_, outcome, _ in course.ends] == ["answer", "TokenTimeout", "TokenTimeout"]
    assert (course.posts, max(seconds for *_, seconds in course.ends) < WITHIN) == (0, True)
