"""A fault at every single call to AWS of a request, from its first delivery to its last.

The calls are not listed. Each scenario is repeated with the fault one call later, until no call is left. Each
repetition starts with a new container, so that it reads the policy again.
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

SMALL_INPUT = 500  # bytes; the maximum of a schedule in these tests
THROTTLED: Any = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}


@dataclass(frozen=True)
class Scenario:
    """The course of a request without a fault.

    Args:
        calls: the number of calls.
        first_killed_before: the call before which the first delivery dies.
    """

    payload: dict[str, Any]
    calls: int
    ends: str = SUCCEEDED
    code: str = ""
    most_attempts: int = 8
    first_killed_before: str = ""


SCENARIOS = {
    "a success": Scenario({}, 3),
    "a retry by SQS delay": Scenario({"fails": 1}, 8),
    "a retry by a schedule": Scenario({"fails": 1, "retry_after": 5000}, 8),
    "a retry by hops": Scenario({"fails": 1, "retry_after": 5000, "filling": "x" * SMALL_INPUT}, 13),
    "poison": Scenario({"poison": "no such thing"}, 4, DEAD_LETTERED, "Poison"),
    "attempts exhausted": Scenario({"fails": 99}, 9, DEAD_LETTERED, "AttemptsExhausted", most_attempts=2),
    "an attempt that died": Scenario({"dies": 1}, 11),
    "a plan carried out by another delivery": Scenario({"fails": 1}, 7, first_killed_before="SendMessage"),
    "a dead-letter message sent by another delivery": Scenario(
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


# Death before a call equals death after the one before it.
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


def _until_the_end(workplace: WorkerHarness) -> None:
    workplace.wait(LEASE + 1)
    workplace.live()


MEANWHILE = {
    "while the first worker works": _at_the_same_time,
    "while the first worker pauses beyond its lease": _after_the_lease,
    "while the first worker pauses until the request has ended": _until_the_end,
}


def _run(workplace: WorkerHarness, scenario: Scenario, when: When, strike: Callable[[], None]) -> Iterator[str]:
    """Run the scenario once for each of its calls, with a fault at that call. Yields the request's id each time."""
    default = {"jitter": "none", "max_attempts": scenario.most_attempts}
    workplace.put_policy(json.dumps({"default": default}))
    for number in itertools.count(1):
        workplace.use()
        request_id = f"struck-at-call-{number}"
        queued = workplace.send(request_id, **scenario.payload)
        if scenario.first_killed_before:
            kill_before(workplace.sqs, scenario.first_killed_before)
            workplace.deliver(queued)
            workplace.use()
        workplace.strike(number, when, strike)
        workplace.live()
        if workplace.unstruck():
            assert number == scenario.calls + 1, "the scenario's number of calls is wrong"
            return
        yield request_id


def _check(workplace: WorkerHarness, scenario: Scenario, request_id: str) -> None:
    attempts = [attempt for name, attempt in workplace.performed if name == request_id]
    mine = [each for each in workplace.dead_letters if json.loads(each.body)["request_id"] == request_id]
    row = workplace.row(request_id)
    succeeds = scenario.ends == SUCCEEDED
    assert row["status"] == scenario.ends, request_id
    assert [name for name, _ in workplace.effects].count(request_id) == succeeds, request_id
    assert len(attempts) == len(set(attempts)), f"{request_id}: an attempt was made twice: {attempts}"
    assert max(attempts) <= int(row["attempts"]), request_id
    assert {each.attributes["code"]["StringValue"] for each in mine} == ({scenario.code} - {""}), request_id


def _nothing_comes_of_repeats(workplace: WorkerHarness) -> None:
    """Deliver every message once more."""
    before = (list(workplace.performed), list(workplace.dead_letters))
    for queued in list(workplace.seen):
        workplace.copy(queued)
    workplace.live(deliveries=1000)
    assert (workplace.performed, workplace.dead_letters) == before


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_r1_r2_r3_a_fault_at_any_call_does_not_change_how_a_request_ends(
    quick_workplace: WorkerHarness, name: str, strike: str
) -> None:
    scenario = SCENARIOS[name]
    for request_id in _run(quick_workplace, scenario, *STRIKES[strike]):
        _check(quick_workplace, scenario, request_id)
    _nothing_comes_of_repeats(quick_workplace)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("name", SCENARIOS)
def test_f24_another_delivery_of_the_same_message_after_any_call_changes_nothing(
    quick_workplace: WorkerHarness, name: str, meanwhile: str
) -> None:
    scenario = SCENARIOS[name]

    def deliver_again() -> None:
        with quick_workplace.unnoted():
            MEANWHILE[meanwhile](quick_workplace)

    for request_id in _run(quick_workplace, scenario, "after", deliver_again):
        _check(quick_workplace, scenario, request_id)


def test_the_age_counts_from_the_start_of_a_died_attempt(
    quick_workplace: WorkerHarness,
) -> None:
    quick_workplace.put_policy('{"default": {"max_age_seconds": 700}}')
    quick_workplace.send(dies=1)
    quick_workplace.live()  # it is received again after 720 s
    (dead_letter,) = quick_workplace.dead_letters
    assert dead_letter.attributes["code"]["StringValue"] == "TooOld"
