"""With 0 to 4 s for each call of the API, a dead token is refreshed once, and a live one never."""

from __future__ import annotations

import pytest

from slotkeeper.chatbot.token import timing
from slotkeeper.token import Timing
from tests.simulation.token_latency import Course, Latencies, Message, play

SHIPPED = {"the chatbot's": timing(5), "the default": Timing()}
WITHIN = 21.5  # seconds, the chatbot's for the tokens of one message: 28 s, less 2 s of reserve and one answer
FINE = [hundredths / 100 for hundredths in range(0, 401, 10)]
COARSE = [tenths / 10 for tenths in range(0, 41, 5)]
SHARES_OF_API = [0.0, 0.1, 0.2, 0.4, 0.6, 0.7, 0.75, 0.8]  # FINE, as shares of the default `Timing.api`

# Three instances with ordinary messages, and one whose messages get a 401 with any token. The token dies at 100 s.
ORDINARY = tuple(tuple(Message(at + later) for at in (0, 30, 99, 100, 130, 170)) for later in (0.0, 0.3, 1.1))
FORBIDDEN = (Message(0.2, False), Message(40, False), Message(100.1, False), Message(140, False))


def played(latencies: Latencies, times: Timing, *, revoked_at: float | None = 100.0) -> Course:
    return play(latencies, times, (FORBIDDEN, *ORDINARY), revoked_at=revoked_at, within=WITHIN)


def broken(course: Course, posts: int) -> str:
    """The error in a course in which `posts` tokens died, or an empty text."""
    if course.posts != posts:
        return f"{course.posts} POST /auth for {posts} dead tokens"
    if set(course.outcomes) != {"answer"}:
        return f"ordinary messages ended with {dict(course.outcomes)}"
    if any(outcome == "answer" for _, message, outcome, _ in course.ends if not message.allowed):
        return "a message that is not allowed was answered"
    return ""


@pytest.mark.parametrize("effect_first", [True, False], ids=["as it arrives", "at its end"])
@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_t1_a_dead_token_is_refreshed_once_at_every_latency(times: Timing, effect_first: bool) -> None:
    violations = {each: broken(played(Latencies(each, each, each, effect_first), times), 1) for each in FINE}
    assert {latency: error for latency, error in violations.items() if error} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_t1_a_dead_token_is_refreshed_once_at_every_pair_of_probe_and_post_latency(times: Timing) -> None:
    violations = {
        (probe, post): broken(played(Latencies(probe, post, 0.5), times), 1) for probe in COARSE for post in COARSE
    }
    assert {latency: error for latency, error in violations.items() if error} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_f31_a_message_that_always_gets_401_ends_no_token_at_any_latency(times: Timing) -> None:
    violations = {each: broken(played(Latencies(each, each, each), times, revoked_at=None), 0) for each in FINE}
    assert {latency: error for latency, error in violations.items() if error} == {}


@pytest.mark.parametrize("times", SHIPPED.values(), ids=SHIPPED)
def test_an_own_failure_of_one_instance_fails_no_message_of_others(times: Timing) -> None:
    """The instance cannot read the credentials, and is the first to get a 401 for each dead token."""
    violations = {}
    for each in FINE:
        course = play(
            Latencies(each, each, each), times, ORDINARY, revoked_at=98.0, within=WITHIN, own_failure="no secret"
        )
        violations[each] = broken(course, 1)
    assert {latency: error for latency, error in violations.items() if error} == {}


def _violations(times: Timing) -> list[str]:
    """The errors at latencies up to 0.8 of `api`: a dead token, no dead token, an own failure of one instance."""
    violations = []
    for share in SHARES_OF_API:
        each = share * times.api
        latencies, late = Latencies(each, each, each), Latencies(each, each, each, effect_first=False)
        everyone = (FORBIDDEN, *ORDINARY)
        courses = {
            "dead": (play(latencies, times, everyone, revoked_at=100.0, within=times.patience), 1),
            "dead, late": (play(late, times, everyone, revoked_at=100.0, within=times.patience), 1),
            "alive": (play(latencies, times, everyone, within=times.patience), 0),
            "own failure": (
                play(latencies, times, ORDINARY, revoked_at=98.0, within=times.patience, own_failure="no secret"),
                1,
            ),
        }
        violations += [f"{share} {name}: {error}" for name, made in courses.items() if (error := broken(*made))]
    return violations


def test_t1_the_times_for_a_short_timeout_refresh_a_dead_token_once_and_a_live_one_never() -> None:
    assert _violations(Timing.for_timeout(6)) == []


def test_control_a_third_of_the_timeout_for_a_refresh_leaves_too_little_time_to_wait() -> None:
    assert _violations(Timing(api=1.5, store=0.5, min_interval=1.0, patience=4.0)) != []


def test_a_single_instance_with_an_own_failure_ends_each_wait_with_a_timeout() -> None:
    alone = (tuple(Message(at) for at in (0, 30, 60)),)
    course = play(Latencies(1, 1, 1), timing(5), alone, revoked_at=10.0, within=WITHIN, own_failure="no secret")
    assert [outcome for *_, outcome, _ in course.ends] == ["answer", "TokenTimeout", "TokenTimeout"]
    assert (course.posts, max(seconds for *_, seconds in course.ends) < WITHIN) == (0, True)
