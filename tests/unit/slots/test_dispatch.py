"""A dispatch at its bounds: of rounds, of time, of refusals, and of the rings that it sends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import number
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import plan
from slotkeeper.slots.dispatch import MAX_EXECUTIONS, MAX_REFUSALS, MAX_ROUNDS, RESERVE_SECONDS, DispatchFailed, Report
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.plan import MAX_STARTS, PlannedStart
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.queued import behind_key, behind_rank
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request_table import MAX_LEAVES
from slotkeeper.slots.starts import AGE_SECONDS
from tests.simulation.account.boundary import before_write, lose_answer, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, leased, reserved, running

LIMIT = 1
SOON = "2027-01-15T08:01:00Z"  # a minute after NOW


def ids(count: int) -> list[str]:
    return [f"{at:03}" for at in range(count)]


# Processes that run nothing


def test_f19_requests_of_an_unknown_process_are_rejected_in_rounds(scene: QueueScene) -> None:
    scene.queue(*ids(MAX_LEAVES + 1))
    scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})

    report = scene.dispatch()

    assert len(report.left) == MAX_LEAVES + 1
    assert {each.code for each in report.left} == {"UnknownProcess"}
    assert set(scene.states.values()) == {"REJECTED"}
    assert "process 'p' does not exist" in report.left[0].reason


def test_requests_of_a_process_for_leases_are_rejected_unless_they_hold_a_slot(scene: QueueScene) -> None:
    scene.queue("a", weight=9)  # above its limit
    (name,) = scene.queue("holds")
    scene.hold({name: running()})
    scene.change(target={"S": "none"})
    (rejected,) = scene.dispatch().left
    assert (rejected.code, scene.states) == ("LeasesOnly", {"a": "REJECTED", "holds": "QUEUED"})
    assert (scene.process.grants, scene.rings) == (8, [])


# What is read


@pytest.mark.parametrize(
    "attributes", [{}, {"paused": {"BOOL": True}, "slot_limit": number(9)}], ids=["full", "paused"]
)
def test_a_process_in_which_nothing_can_start_costs_one_read(attributes: dict[str, Any], scene: QueueScene) -> None:
    scene.hold({"p-x": running()})
    scene.change(**attributes)
    scene.queue("a")
    scene.aws.made.clear()
    assert scene.dispatch() == Report()
    assert scene.aws.made == ["GetItem"]


ONE = ["UpdateItem", "BatchGetItem", "StartExecution", "UpdateItem"]
MANY = ["UpdateItem", "BatchGetItem", *["StartExecution", "UpdateItem"] * MAX_STARTS]


@pytest.mark.parametrize(
    ("limit", "blocked", "queued", "calls", "read"),
    [
        pytest.param(1, 0, 0, ["GetItem", "Query"], [26], id="an empty queue"),
        pytest.param(1, 0, 60, ["GetItem", "Query", *ONE], [26], id="many requests"),
        pytest.param(1, 25, 60, ["GetItem", "Query", *ONE], [26], id="some are blocked"),
        pytest.param(1, 60, 1, ["GetItem", "Query", "Query", *ONE], [26, None], id="many are blocked"),
        pytest.param(26, 0, 60, ["GetItem", "Query", *MANY, "GetItem", "Query", *ONE], [26, 51], id="two grants"),
    ],
)
def test_the_calls_of_a_dispatch_without_keys(
    limit: int, blocked: int, queued: int, calls: list[str], read: list[int | None], scene: QueueScene
) -> None:
    """`read`: the number of requests that each Query reads; None: 1 MB."""
    scene.change(slot_limit=number(limit))
    scene.queue(*(f"heavy-{at}" for at in range(blocked)), weight=limit + 1)
    scene.queue(*ids(queued))
    scene.aws.made.clear()
    limits = list[int | None]()
    event = "provide-client-params.dynamodb.Query"
    scene.dynamodb.meta.events.register(event, lambda params, **_: limits.append(params.get("Limit")))
    scene.dispatch()
    assert (scene.aws.made, limits) == (calls, read)


@pytest.mark.parametrize("leavers", [True, False])
def test_a_full_or_paused_process_is_read_for_requests_that_may_have_to_leave(leavers: bool, scene: QueueScene) -> None:
    scene.hold({"p-x": running()})
    scene.queue("a", when_busy="skip")
    scene.queue("b", start_before="2027-01-15T08:00:00Z")
    scene.dispatch(leavers=leavers)
    assert scene.states == ({"a": "SKIPPED", "b": "TOO_LATE"} if leavers else {"a": "QUEUED", "b": "QUEUED"})


# Bounds


def test_a_dispatch_starts_a_hundred_and_rings_for_the_rest(scene: QueueScene) -> None:
    scene.change(slot_limit=number(200))
    scene.queue(*ids(MAX_EXECUTIONS + 1))
    assert len(scene.dispatch().started) == MAX_EXECUTIONS
    assert scene.rings == [({"process": "p", "count": 1}, 0)]


def test_with_little_time_left_a_dispatch_rings_instead(scene: QueueScene) -> None:
    scene.queue("a")
    scene.left = RESERVE_SECONDS - 0.1
    assert scene.dispatch() == Report()
    assert (scene.rings, scene.states) == ([({"process": "p", "count": 1}, 0)], {"a": "QUEUED"})


def test_rounds_are_bounded(scene: QueueScene) -> None:
    scene.change(slot_limit=number(MAX_ROUNDS + 1))
    scene.hold({f"lease-{at}": leased(NOW - 60) for at in range(MAX_ROUNDS + 1)})
    scene.dispatch()
    assert (len(scene.process.holders), scene.rings) == (1, [({"process": "p", "count": 1}, 0)])


# Keys. A round is one read here


@pytest.fixture
def keys(scene: QueueScene, monkeypatch: pytest.MonkeyPatch) -> QueueScene:
    """A process in which 30 keys are at their limit, so that only others can start."""
    monkeypatch.setattr(plan, "MAX_READS", 1)
    scene.change(slot_limit=number(99), key_limit=number(1))
    for key in ids(30):
        scene.hold({f"p-{key}": running() | {"key": {"S": key}}})
        scene.queue(f"{key}-1", f"{key}-2", key=key)
    return scene


def test_rings_continue_a_dispatch_until_it_has_found_the_key_that_can_start(
    keys: QueueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also ends what must leave in the part that was passed, and rings for what must leave later."""
    monkeypatch.setattr("slotkeeper.slots.dispatch.MAX_ROUNDS", 1)
    keys.change(after_keys={"M": {"1": {"S": "015"}}})
    keys.queue("skips", key="020", when_busy="skip")
    keys.queue("late", key="020", start_before=SOON)
    keys.queue("free", key="014x")

    keys.dispatch(leavers=True)
    for body, _ in (keys.rings[-1] for _ in range(20)):
        if "count" in body:
            keys.dispatch(at=body["at"], passed=body.get("passed"))

    assert (keys.ran, keys.process.after_keys) == (["free"], {"1": "014x"})
    assert (keys.states["skips"], keys.states["late"]) == ("SKIPPED", "QUEUED")
    assert keys.rings[-1] == ({"process": "p", "at": NOW + 60}, 60)


PASSED = behind_rank("0"), behind_key("1", "015")


def test_what_came_in_a_part_that_was_passed_has_a_dispatch_of_its_own(keys: QueueScene) -> None:
    keys.queue("skips", key="010x", when_busy="skip")
    keys.dispatch(passed=PASSED, leavers=True)
    assert (keys.states["skips"], keys.ran) == ("QUEUED", [])
    keys.dispatch(leavers=True)
    assert keys.ran == ["skips"]


def test_after_a_request_has_left_what_it_kept_back_is_not_passed_any_more(keys: QueueScene) -> None:
    keys.change(key_limit=number(2), key_limits={"M": dict.fromkeys(ids(30), number(1))})
    keys.hold({"p-x": running() | {"key": {"S": "010x"}}})
    keys.queue("heavy", key="010x", weight=2, start_before="2027-01-15T08:00:00Z")
    keys.queue("light", key="010x")
    keys.dispatch(passed=PASSED, leavers=True)
    assert (keys.states["heavy"], keys.ran) == ("TOO_LATE", ["light"])


def test_after_a_start_was_refused_its_key_is_not_passed_any_more(keys: QueueScene) -> None:
    (refused,) = keys.queue("refused", key="010x", priority="high")
    keys.queue("next", key="010x")
    keys.aws.start_errors[refused] = "InvalidName"
    keys.dispatch()
    assert (keys.states["refused"], keys.ran) == ("REJECTED", ["next"])


# Refused grants


@pytest.mark.parametrize(
    ("refusals", "ran", "rings"),
    [(MAX_REFUSALS - 1, ["a"], []), (MAX_REFUSALS, [], [({"process": "p", "count": 1}, 1)])],
    ids=["then it is granted", "a ring follows in a second"],
)
def test_after_a_refused_grant_the_plan_is_made_again_four_times(
    refusals: int, ran: list[str], rings: list[Any], scene: QueueScene
) -> None:
    scene.queue("a")
    grants = [lambda _: scene.change(grants=number(scene.process.grants + 1))] * refusals
    before_write(scene.dynamodb, *grants)
    report = scene.dispatch()
    assert (report.refused_grants, scene.ran, scene.rings) == (refusals, ran, rings)
    assert scene.slept == [0.05, 0.1, 0.2, 0.4]


def test_a_grant_of_a_process_that_is_removed_meanwhile_is_not_repeated(scene: QueueScene) -> None:
    scene.queue("a")
    gone = {"TableName": "slots", "Key": {"process_name": {"S": "p"}}}
    before_write(scene.dynamodb, lambda _: scene.dynamodb.delete_item(**gone))
    (rejected,) = scene.dispatch().left
    assert (rejected.code, scene.item) == ("UnknownProcess", {})


def test_a_grant_that_may_have_been_made_fails_the_dispatch(scene: QueueScene) -> None:
    """Its reservations are old when the ring of the failure comes."""
    (name,) = scene.queue("a")
    scene.grants.grant(scene.process, [PlannedStart(name, 1)], 0, NOW)
    written = scene.item | {"grants": number(9)}
    scene.change(holders={"M": {}}, slots_in_use=number(0), grants=number(7))
    before_write(scene.dynamodb, lambda _: scene.aws.tables.put("slots", written))
    refuse(scene.dynamodb, "UpdateItem", "ConditionalCheckFailedException", retry_attempts=1, Item=written)
    with pytest.raises(DispatchFailed) as failure:
        scene.dispatch()
    assert (scene.ran, failure.value.again_after) == ([], AGE_SECONDS + 1 + CLOCK_SKEW_SECONDS)
    scene.now += failure.value.again_after
    scene.dispatch()
    assert scene.ran == ["a"]


# Starts that fail


@pytest.mark.parametrize(("operation", "unsettled"), [("GetItem", False), ("Query", False), ("UpdateItem", True)])
def test_a_failed_call_comes_again_later_only_if_it_may_leave_a_reservation(
    operation: str, unsettled: bool, scene: QueueScene
) -> None:
    scene.queue("a")
    lose_answer(scene.dynamodb, operation)
    with pytest.raises(DispatchFailed) as failure:
        scene.dispatch()
    assert bool(failure.value.again_after) == unsettled


def test_a_throttle_ends_the_dispatch_and_rings_after_two_seconds(scene: QueueScene) -> None:
    scene.change(slot_limit=number(2))
    names = scene.queue("a", "b", "c")
    scene.aws.start_errors[names[1]] = "ThrottlingException"
    report = scene.dispatch()
    assert ([*report.started], report.put_back, scene.holders) == (names[:1], [names[1]], {"a": "RESERVED"})
    assert scene.rings == [({"process": "p", "count": 1}, 2)]


def test_after_an_uncertain_start_no_more_are_granted(scene: QueueScene) -> None:
    """Step Functions may be down: each further grant would leave reservations that hold slots for AGE_SECONDS."""
    scene.change(slot_limit=number(200))
    names = scene.queue(*ids(3 * MAX_STARTS))
    scene.aws.start_errors = dict.fromkeys(names, "InternalServerError")
    with pytest.raises(DispatchFailed) as failure:
        scene.dispatch()
    assert failure.value.again_after == AGE_SECONDS + 1 + CLOCK_SKEW_SECONDS
    assert len(scene.process.holders) == MAX_STARTS


def test_as_many_old_reservations_as_an_item_may_have_are_started_again(scene: QueueScene) -> None:
    """After an outage of Step Functions. BatchGetItem takes 100 keys (API Reference), so they come in rounds."""
    scene.change(slot_limit=number(MAX_HOLDERS))
    names = scene.queue(*ids(5 * MAX_STARTS))
    scene.hold({name: reserved(NOW - AGE_SECONDS - 2) for name in names})
    for name in names[:MAX_STARTS]:
        scene.end(name, "STARTED")  # their workflows have not confirmed yet
    scene.dispatch()
    assert sorted(scene.ran) == ids(5 * MAX_STARTS)[MAX_STARTS:]


# Timed rings


def test_a_timed_ring_is_noted_after_it_was_sent_and_not_sent_again_meanwhile(scene: QueueScene) -> None:
    scene.hold({"p-x": running()})
    scene.queue("a", start_before=SOON)
    scene.aws.made.clear()

    scene.dispatch(leavers=True)

    assert scene.rings == [({"process": "p", "at": NOW + 60}, 60)]
    assert scene.aws.made[-2:] == ["SendMessage", "UpdateItem"]
    assert scene.process.ring_at == NOW + 60
    scene.dispatch(leavers=True)
    assert len(scene.rings) == 1
    scene.queue("earlier", start_before="2027-01-15T08:00:30.5Z")
    scene.dispatch(leavers=True)
    assert scene.rings[1:] == [({"process": "p", "at": NOW + 30.5}, 30)]


@pytest.mark.parametrize(("early", "slept"), [(0.7, 0.7), (0.0, 0.0), (-3.0, 0.0), (30.0, 1.0)])
def test_a_timed_dispatch_sleeps_for_the_rest_of_its_second(early: float, slept: float, scene: QueueScene) -> None:
    """SQS delays by whole seconds, and a ring rounds down."""
    scene.dispatch(at=NOW + early)
    assert scene.slept == [pytest.approx(slept)]


def test_a_ring_that_is_early_by_this_clock_rings_again(scene: QueueScene) -> None:
    """The clock of its sender was ahead by three seconds. The ring that is noted is this one."""
    scene.change(rate=Rate(1, 60).item, next_start=number(int(NOW + 4) * 1000), ring_at=number(NOW + 4))
    scene.queue("a")
    scene.tools = replace(scene.tools, sleep=scene.pass_time)
    scene.dispatch(at=NOW + 4)
    assert (scene.ran, scene.now) == ([], NOW + 1)
    assert scene.rings == [({"process": "p", "at": NOW + 4}, 3)]


@pytest.mark.parametrize(("delay", "sent"), [(-1.0, 0), (0.9, 0), (2.0, 2), (900.4, 900), (5000.0, 900)])
def test_a_ring_is_delayed_by_whole_seconds_that_sqs_takes(delay: float, sent: int, scene: QueueScene) -> None:
    scene.tools.doorbell.ring(Bell("p"), delay)
    assert [each for _, each in scene.rings] == [sent]
