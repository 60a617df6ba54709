"""The rate of a process: when a start is due, what a refused request does until then, and malformed rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import SlotUnavailable
from slotkeeper.slots.admission import Admitted, DeadLettered, Waiting
from slotkeeper.slots.process import MAX_HIDE_SECONDS
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.protocol import Candidate, Granted, Misconfigured, Registration
from slotkeeper.slots.queues import wake_next
from slotkeeper.slots.rate import Rate, parse_rate
from slotkeeper.slots.request import Priority, message_group
from tests.support.boundary import Calls, before_write, passed_values
from tests.unit.conftest import FULL, NOW, Account, delivery
from tests.unit.slots.lease_scene import LeaseScene

TEN_A_MINUTE = Rate(10, 60)
INTERVAL = 6


def _reserve(account: Account, execution: str, now: float, weight: int | None = 1) -> Any:
    return account.slots.reserve(Candidate("p", execution, weight, delivery=delivery({})), now)


@pytest.fixture
def paced(account: Account) -> Account:
    """The process has twenty slots, and may start ten requests a minute."""
    account.processes.set_limit("p", 20)
    account.processes.set_rate("p", TEN_A_MINUTE)
    return account


# reserve


def test_a_start_is_due_an_interval_after_the_last(paced: Account) -> None:
    assert _reserve(paced, "p-1", NOW) == Granted()
    assert _reserve(paced, "p-2", NOW + INTERVAL - 0.001) == FULL
    assert _reserve(paced, "p-2", NOW + INTERVAL) == Granted()
    assert paced.item().next_start == (NOW + 2 * INTERVAL) * 1000


def test_a_burst_may_start_immediately_and_is_saved_up_again_while_nothing_starts(paced: Account) -> None:
    paced.processes.set_rate("p", replace(TEN_A_MINUTE, burst=2))
    starts = [NOW, NOW, NOW, NOW + 5.9, NOW + 6, NOW + 6, NOW + 1000, NOW + 1000, NOW + 1000]
    granted = [_reserve(paced, f"p-{n}", now) == Granted() for n, now in enumerate(starts)]
    assert granted == [True, True, False, False, True, False, True, True, False]


@pytest.mark.parametrize(("rate", "interval"), [(Rate(10, 60), 6000), (Rate(7, 60), 8572), (Rate(30, 1), 34)], ids=str)
def test_an_interval_is_rounded_up(rate: Rate, interval: int) -> None:
    assert rate.interval == interval


def test_another_start_between_read_and_write_refuses(paced: Account) -> None:
    paced.item()
    _reserve(paced, "p-1", NOW - 100)
    before_write(paced.dynamodb, lambda _: _reserve(paced, "p-faster", NOW))
    assert _reserve(paced, "p-2", NOW) == FULL
    assert paced.item().holders.keys() == {"p-1", "p-faster"}


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_rate_that_is_set_between_read_and_write_is_used(account: Account, reads_first: bool) -> None:
    account.processes.set_limit("p", 5)
    weight = 2 if reads_first else 1
    before_write(account.dynamodb, lambda _: account.processes.set_rate("p", TEN_A_MINUTE))
    assert _reserve(account, "p-1", NOW, weight) == Granted()
    assert account.item().next_start == (NOW + INTERVAL) * 1000


def test_a_rate_that_changes_between_read_and_write_is_used(paced: Account) -> None:
    paced.slots.read("p")  # so that the reserve reads before its write
    before_write(paced.dynamodb, lambda _: paced.processes.set_rate("p", Rate(1, 60)))
    assert _reserve(paced, "p-2", NOW) == Granted()
    assert paced.item().next_start == (NOW + 60) * 1000


def test_a_process_without_a_rate_costs_one_call_and_one_with_a_rate_a_read_more(account: Account) -> None:
    account.processes.set_limit("p", 5)
    made = Calls(account.dynamodb).made
    assert _reserve(account, "p-1", NOW) == Granted()
    assert made == ["UpdateItem"]
    account.processes.set_rate("p", TEN_A_MINUTE)
    made.clear()
    _reserve(account, "p-2", NOW)
    assert made == ["UpdateItem", "UpdateItem"]  # the first write finds the rate
    made.clear()
    _reserve(account, "p-3", NOW + INTERVAL)
    assert made == ["GetItem", "UpdateItem"]
    made.clear()
    _reserve(account, "p-4", NOW + INTERVAL)
    assert made == ["GetItem"]


def test_a_change_of_the_rate_begins_a_new_count(paced: Account) -> None:
    paced.processes.set_rate("p", Rate(1, 86_400))
    _reserve(paced, "p-1", NOW)
    paced.processes.set_rate("p", TEN_A_MINUTE)
    assert _reserve(paced, "p-2", NOW) == Granted()
    paced.processes.set_rate("p", None)
    assert _reserve(paced, "p-3", NOW) == Granted()
    assert paced.item().rate is None
    assert "next_start" not in paced.processes.read_item("p")


# wait


REQUEST = {"process": "p", "request_id": "order-1"}


def test_a_request_that_is_early_registers_and_is_hidden_until_a_start_is_due(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    hidden = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    outcome = paced.starter.admit(paced.send(REQUEST), NOW + 0.5)
    assert isinstance(outcome, Waiting)
    assert outcome.because == "rate"
    assert hidden == [5]
    assert paced.item().waiting["normal"].hidden_until == NOW + 6


@pytest.mark.parametrize(("passed", "seconds"), [(0.9, 5), (3, 2), (30, 0)])
def test_the_time_of_slow_calls_before_the_hide_counts(paced: Account, passed: float, seconds: int) -> None:
    _reserve(paced, "p-1", NOW)
    hidden = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    paced.starter = replace(paced.starter, clock=lambda: NOW + 0.5 + passed)
    assert isinstance(paced.starter.admit(paced.send(REQUEST), NOW + 0.5), Waiting)
    assert hidden == [seconds]


def test_a_request_is_hidden_for_half_an_hour_at_most(paced: Account) -> None:
    paced.processes.set_rate("p", Rate(1, 86_400))
    _reserve(paced, "p-1", NOW)
    hidden = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert isinstance(paced.starter.admit(paced.send(REQUEST), NOW), Waiting)
    assert wake_next(paced.slots, paced.queue, "p", NOW)
    assert hidden == [MAX_HIDE_SECONDS] * 2


def test_the_starter_waits_for_the_rest_of_a_second_and_stamps_the_time_that_was_due(paced: Account) -> None:
    slept = list[float]()
    _reserve(paced, "p-1", NOW)
    paced.starter = replace(paced.starter, sleep=slept.append)
    outcome = paced.starter.admit(paced.send(REQUEST), NOW + INTERVAL - 0.25)
    assert isinstance(outcome, Admitted)
    assert slept == [0.25]
    assert paced.item().next_start == (NOW + 2 * INTERVAL) * 1000


def test_a_request_of_a_higher_priority_that_comes_while_the_starter_waits_is_first(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    urgent = Candidate("p", "p-urgent", priority="high", delivery=delivery({}))
    paced.starter = replace(paced.starter, sleep=lambda _: paced.slots.reserve(urgent, NOW + INTERVAL))
    hidden = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    outcome = paced.starter.admit(paced.send(REQUEST), NOW + INTERVAL - 0.25)
    assert isinstance(outcome, Waiting)
    assert hidden == [INTERVAL]
    assert paced.item().waiting["normal"].request_id == "order-1"


def test_a_slot_that_is_freed_before_a_start_is_due_leaves_the_message_hidden_until_then(paced: Account) -> None:
    """The hide of a full process would undo the wake, which has set the time at which a start is due."""
    paced.processes.set_limit("p", 1)
    _reserve(paced, "p-1", NOW)
    sent = paced.send(REQUEST)

    def free(params: dict[str, Any], **_: Any) -> None:
        if params["VisibilityTimeout"] == 225:
            paced.slots.cancel("p", "p-1")
            wake_next(paced.slots, paced.queue, "p", NOW)

    paced.sqs.meta.events.register("provide-client-params.sqs.ChangeMessageVisibility", free)
    hidden = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert isinstance(paced.starter.admit(sent, NOW), Waiting)
    assert hidden == [INTERVAL, 225, INTERVAL]


@pytest.mark.parametrize("change", [None, Rate(1, 1)], ids=str)
def test_a_rate_that_is_changed_after_the_refusal_is_read_again(paced: Account, change: Rate | None) -> None:
    _reserve(paced, "p-1", NOW)
    seen = paced.item()
    paced.processes.set_rate("p", change)
    early = Candidate("p", "p-2", delivery=delivery({}, sequence="2"))
    assert paced.slots.wait(early, seen, NOW + 5, is_early=True) == Registration.RESERVE_AGAIN


def test_a_request_that_waits_for_a_slot_does_not_register_because_of_the_rate(paced: Account) -> None:
    paced.processes.set_limit("p", 1)
    _reserve(paced, "p-1", NOW)
    seen = paced.item()
    paced.slots.cancel("p", "p-1")
    refused = Candidate("p", "p-2", delivery=delivery({}, sequence="2"))
    assert paced.slots.wait(refused, seen, NOW) == Registration.RESERVE_AGAIN


def test_an_early_request_expires_with_its_reason(paced: Account) -> None:
    old = replace(paced.send(REQUEST), sent_at=NOW - 14 * 86_400)
    _reserve(paced, "p-1", NOW)
    outcome = paced.starter.admit(old, NOW)
    assert isinstance(outcome, DeadLettered)
    assert "the process's rate permits no further start yet" in outcome.reason


# wakes


def _waits(account: Account, priority: Priority = "normal") -> None:
    sent = account.send(f"p-{priority}", message_group("p", priority))
    candidate = Candidate("p", f"p-{priority}", 1, priority, sent)
    registered = account.slots.wait(candidate, account.item(), NOW + 225, is_early=True)
    assert registered is Registration.REGISTERED


@pytest.mark.parametrize(("after", "delay"), [(0, 6), (0.2, 5), (5.2, 0), (6, 0), (9, 0)])
def test_a_wake_comes_when_a_start_is_due(paced: Account, after: float, delay: int) -> None:
    _reserve(paced, "p-1", NOW)
    _waits(paced)
    woken = paced.slots.to_wake("p", NOW + after)
    assert woken is not None
    assert (woken.delay, paced.item().wake_delay("normal", NOW + after)) == (delay, delay)


@pytest.mark.parametrize(("began", "delay"), [(0, 7), (-1, 6)], ids=["the last start", "an earlier one"])
def test_the_turn_of_a_higher_priority_lasts_until_after_its_next_start_is_due(
    paced: Account, began: float, delay: int
) -> None:
    _reserve(paced, "p-1", NOW)
    paced.write("turn_high", {"N": str(int(NOW + began) * 1000)})
    _waits(paced, "low")
    assert paced.item().wake_delay("low", NOW) == delay


def test_the_janitor_wakes_a_request_for_which_a_start_has_been_due_for_seconds(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    _waits(paced)
    made = Calls(paced.sqs).made
    assert "WaitingWoken" not in paced.run_at(NOW + INTERVAL + CLOCK_SKEW_SECONDS - 0.1).counts
    assert "ChangeMessageVisibilityBatch" not in made
    assert paced.run_at(NOW + INTERVAL + CLOCK_SKEW_SECONDS).counts["WaitingWoken"] == 1


def test_the_janitor_wakes_a_cancelled_request_although_no_start_is_due(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    _waits(paced)
    paced.processes.cancellations.add("p", "p-normal", NOW)
    assert paced.run_at(NOW).counts["WaitingWoken"] == 1


def test_a_new_rate_wakes_the_first_request(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    _waits(paced)
    operations = Operations(paced.processes, paced.slots, paced.queue, lambda: NOW)
    made = passed_values(paced.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert operations.set_rate("p", None) is True
    assert made == [0]


# leases


def test_a_lease_waits_until_a_start_is_due(paced: Account) -> None:
    scene = LeaseScene(paced)
    with scene.leases.lease("p", seconds=60):
        pass
    with scene.leases.lease("p", seconds=60, wait=20):
        assert scene.clock.waits == [INTERVAL]
    assert paced.item().next_start == (NOW + 2 * INTERVAL) * 1000


def test_a_lease_that_cannot_wait_for_the_rate_states_it(paced: Account) -> None:
    scene = LeaseScene(paced)
    _reserve(paced, "p-1", NOW)
    with pytest.raises(SlotUnavailable, match=r"its rate of 10/minute permits the next start in 6\.0 s"):
        scene.leases.lease("p", seconds=60).__enter__()


def test_a_lease_takes_over_an_expired_one_only_when_a_start_is_due(paced: Account) -> None:
    scene = LeaseScene(paced)
    paced.processes.set_limit("p", 1)
    _reserve(paced, "p-1", NOW - INTERVAL + 1)
    paced.slots.cancel("p", "p-1")
    scene.expired()
    with scene.leases.lease("p", seconds=60, wait=20):
        assert sum(scene.clock.waits) >= 1
    assert paced.item().next_start >= (NOW + 1 + INTERVAL) * 1000


# malformed rates


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(0, 60), "rate must have a whole number above 0 as count, got 0"),
        (Rate(-1, 60), "got -1"),
        (Rate(True, 60), "got True"),
        (Rate(1, 0), "rate must have a whole number above 0 as seconds, got 0"),
        (Rate(1, 86_401), "rate must have at most 86400 seconds, got 86401"),
        (Rate(1001, 1), "rate must be at most 1000 starts a second, got 1001 in 1 s"),
        (Rate(10, 60, 11), "rate must have a burst of at most its count, 10, got 11"),
        (Rate(10, 60, 0), "above 0 as burst, got 0"),
    ],
)
def test_a_rate_that_is_not_valid_is_refused(account: Account, rate: Rate, text: str) -> None:
    for change in (lambda: account.processes.create("q", 1, rate=rate), lambda: account.processes.set_rate("p", rate)):
        with pytest.raises(ValueError, match=text):
            change()
    assert account.item().rate is None


@pytest.mark.parametrize(("text", "burst", "rate"), [("10/minute", 2, Rate(10, 60, 2)), ("1/day", 1, Rate(1, 86_400))])
def test_a_rate_is_written_as_it_is_read(text: str, burst: int, rate: Rate) -> None:
    assert parse_rate(text, burst) == rate
    assert str(rate) == text + (f", burst {burst}" if burst > 1 else "")


@pytest.mark.parametrize("text", ["", "10", "10/", "/minute", "10/fortnight", "1.5/second", "-1/second", "10 / minute"])
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be COUNT/UNIT with the unit second or minute or hour or day"):
        parse_rate(text)


WHOLE = TEN_A_MINUTE.item["M"]


@pytest.mark.parametrize(
    ("rate", "next_start", "problem"),
    [
        ({"S": "10/minute"}, {"N": "0"}, "rate must be of DynamoDB type M"),
        ({"M": {}}, {"N": "0"}, "rate.count must be of DynamoDB type N"),
        ({"M": WHOLE | {"count": {"N": "0"}}}, {"N": "0"}, "rate must have a whole number above 0 as count"),
        ({"M": WHOLE | {"count": {"S": "10"}}}, {"N": "0"}, "rate.count must be of DynamoDB type N"),
        ({"M": WHOLE | {"burst": {"N": "11"}}}, {"N": "0"}, "rate must have a burst of at most its count"),
        ({"M": WHOLE | {"per": {"S": "minute"}}}, {"N": "0"}, "rate must have count, seconds and burst alone, got per"),
        ({"M": WHOLE}, {"S": "0"}, "next_start must be of DynamoDB type N"),
        ({"M": WHOLE}, None, "next_start must be of DynamoDB type N"),
    ],
)
def test_a_malformed_rate_starts_nothing(account: Account, rate: Any, next_start: Any, problem: str) -> None:
    account.lose_wake()
    assert account.slots.to_wake("p", NOW) is not None
    account.write("rate", rate)
    if next_start:
        account.write("next_start", next_start)
    outcome = _reserve(account, "p-1", NOW)
    assert isinstance(outcome, Misconfigured)
    assert problem in outcome.reason
    assert account.slots.to_wake("p", NOW) is None


def test_a_head_that_is_blocked_keeps_no_request_from_its_start(paced: Account) -> None:
    _reserve(paced, "p-1", NOW)
    blocked = Candidate("p", "p-heavy", 21, "high", delivery({}))
    assert paced.slots.wait(blocked, paced.item(), NOW) is Registration.REGISTERED
    _waits(paced)
    woken = paced.slots.to_wake("p", NOW)
    assert woken is not None
    assert (woken.waiting.execution, woken.delay) == ("p-normal", INTERVAL)
    later = Candidate("p", "p-2", delivery=delivery({}, sequence="9" * 39))
    assert paced.slots.reserve(later, NOW + INTERVAL) == Granted()
