"""The worker struck at every single call to AWS of a request's life, from its first delivery to its last.

The calls are not listed here: a life is lived again and again, struck one call later each time, until there is no call
left to strike. Each life starts with a container of its own, so that it reads the policy again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from slotkeeper.retry import delivery
from slotkeeper.retry.ledger import DEAD_LETTERED, SUCCEEDED
from tests.support.boundary import Killed, kill_before
from tests.unit.worker_harness import LEASE, When, WorkerHarness

SMALL_INPUT = 500  # bytes; what fits a schedule here
THROTTLED: Any = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}


@dataclass(frozen=True)
class Story:
    """A request's life when nothing happens to it.

    Args:
        calls: how many calls it takes.
        first_killed_before: the call at which its first delivery has died already.
    """

    payload: dict[str, Any]
    calls: int
    ends: str = SUCCEEDED
    code: str = ""
    most_attempts: int = 8
    first_killed_before: str = ""


STORIES = {
    "a success": Story({}, 3),
    "a retry by SQS delay": Story({"fails": 1}, 8),
    "a retry by a schedule": Story({"fails": 1, "retry_after": 5000}, 8),
    "a retry by hops": Story({"fails": 1, "retry_after": 5000, "filling": "x" * SMALL_INPUT}, 13),
    "poison": Story({"poison": "no such thing"}, 4, DEAD_LETTERED, "Poison"),
    "attempts exhausted": Story({"fails": 99}, 9, DEAD_LETTERED, "AttemptsExhausted", most_attempts=2),
    "an attempt that died": Story({"dies": 1}, 11),
    "a plan carried out by another delivery": Story({"fails": 1}, 7, first_killed_before="SendMessage"),
    "a dead letter sent by another delivery": Story(
        {"poison": "no such thing"}, 4, DEAD_LETTERED, "Poison", first_killed_before="SendMessage"
    ),
}


@pytest.fixture(autouse=True)
def _small_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_SCHEDULE_INPUT_BYTES", SMALL_INPUT)


def dies() -> None:
    raise Killed


def loses_the_answer() -> None:
    raise ReadTimeoutError(endpoint_url="the service")


def is_refused() -> None:
    raise ClientError(THROTTLED, "Call")


# To die before a call is to die after the one before it.
STRIKES: dict[str, tuple[When, Callable[[], None]]] = {
    "the worker dies after it": ("after", dies),
    "its answer is lost": ("after", loses_the_answer),
    "it is refused": ("before", is_refused),
}


def _at_the_same_time(workplace: WorkerHarness) -> None:
    workplace.deliver(workplace.copy_in_flight())


def _after_the_lease(workplace: WorkerHarness) -> None:
    workplace.wait(LEASE + 1)
    workplace.deliver(workplace.copy_in_flight())


def _until_all_is_over(workplace: WorkerHarness) -> None:
    workplace.wait(LEASE + 1)
    workplace.live()


MEANWHILE = {
    "while the first one works on it": _at_the_same_time,
    "while the first one stands still beyond its lease": _after_the_lease,
    "while the first one stands still until all is over": _until_all_is_over,
}


def _lives(workplace: WorkerHarness, story: Story, when: When, strike: Callable[[], None]) -> Iterator[str]:
    """Lives the story once for every call it makes, struck at that call; yields the request's id each time."""
    default = {"jitter": "none", "max_attempts": story.most_attempts}
    workplace.put_policy(json.dumps({"default": default}))
    for number in itertools.count(1):
        workplace.use()
        request_id = f"struck-at-call-{number}"
        letter = workplace.send(request_id, **story.payload)
        if story.first_killed_before:
            kill_before(workplace.sqs, story.first_killed_before)
            workplace.deliver(letter)
            workplace.use()
        workplace.strike(number, when, strike)
        workplace.live()
        if workplace.unstruck():
            assert number == story.calls + 1, "the story is not what it says"
            return
        yield request_id


def _check(workplace: WorkerHarness, story: Story, request_id: str) -> None:
    attempts = [attempt for name, attempt in workplace.performed if name == request_id]
    letters = [letter for letter in workplace.dead_letters if json.loads(letter.body)["request_id"] == request_id]
    row = workplace.row(request_id)
    succeeds = story.ends == SUCCEEDED
    assert row["status"] == story.ends, request_id
    assert [name for name, _ in workplace.effects].count(request_id) == succeeds, request_id
    assert len(attempts) == len(set(attempts)), f"{request_id}: an attempt was made twice: {attempts}"
    assert max(attempts) <= int(row["attempts"]), request_id
    assert {letter.attributes["code"]["StringValue"] for letter in letters} == ({story.code} - {""}), request_id


def _nothing_comes_of_repeats(workplace: WorkerHarness) -> None:
    """Every message there ever was is delivered once more."""
    before = (list(workplace.performed), list(workplace.dead_letters))
    for letter in list(workplace.seen):
        workplace.copy(letter)
    workplace.live(deliveries=1000)
    assert (workplace.performed, workplace.dead_letters) == before


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("name", STORIES)
def test_r1_r2_r3_a_fault_at_any_call_does_not_change_how_a_request_ends(
    quick_workplace: WorkerHarness, name: str, strike: str
) -> None:
    story = STORIES[name]
    for request_id in _lives(quick_workplace, story, *STRIKES[strike]):
        _check(quick_workplace, story, request_id)
    _nothing_comes_of_repeats(quick_workplace)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("name", STORIES)
def test_f24_another_delivery_of_the_same_message_after_any_call_changes_nothing(
    quick_workplace: WorkerHarness, name: str, meanwhile: str
) -> None:
    story = STORIES[name]

    def deliver_again() -> None:
        with quick_workplace.unnoted():
            MEANWHILE[meanwhile](quick_workplace)

    for request_id in _lives(quick_workplace, story, "after", deliver_again):
        _check(quick_workplace, story, request_id)


def test_the_age_counts_from_the_start_of_a_died_attempt(
    quick_workplace: WorkerHarness,
) -> None:
    quick_workplace.put_policy('{"default": {"max_age_seconds": 700}}')
    quick_workplace.send(dies=1)
    quick_workplace.live()  # it is back after 720 s
    (letter,) = quick_workplace.dead_letters
    assert letter.attributes["code"]["StringValue"] == "TooOld"
