"""Leases: the slot of a block of code, its end, and the errors of its caller. tests/deployed/races races for them."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper import slots
from slotkeeper.aws.dynamodb import number
from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots import Leases, MalformedProcess, NestedLease, SlotLost, SlotUnavailable, lease_protocol, leases
from slotkeeper.slots.leases import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, MAX_LEASE_SECONDS
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.rate import Rate
from tests.simulation.account.boundary import Calls, before_write, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.lease_scene import LeaseScene
from tests.unit.slots.queue_scene import running

Act = Callable[[LeaseScene], object]


@pytest.fixture
def scene() -> LeaseScene:
    return LeaseScene()


def _the_lease(scene: LeaseScene) -> Any:
    ((_, holder),) = scene.held.items()
    return holder


def _refused(scene: LeaseScene, match: str | None = None, **arguments: Any) -> SlotUnavailable:
    """Why a lease of `p` for a minute is refused."""
    with pytest.raises(SlotUnavailable, match=match) as refused, scene.leases.lease("p", **{"seconds": 60} | arguments):
        pass
    return refused.value


def _hold(caller: Leases) -> str:
    with caller.lease("p", seconds=60):
        return "held"


def _in_a_thread[T](act: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


def _make_twice(scene: LeaseScene) -> None:
    """Let a write be effective before it is made, as if botocore had repeated it after a lost answer."""
    before_write(scene.dynamodb, lambda params: scene.dynamodb.update_item(**params))


def _lose_all_holders(scene: LeaseScene) -> None:
    scene.change(holders={"M": {}}, slots_in_use=number(0))


# The block


def test_a_block_holds_a_slot_with_one_write_and_frees_it_with_another(scene: LeaseScene) -> None:
    scene.aws.made.clear()
    with scene.leases.lease("p", seconds=60) as lease:
        assert scene.aws.made == ["UpdateItem"]
        ((name, holder),) = scene.held.items()
        assert (holder.state, holder.since, holder.until, holder.weight) == ("LEASED", NOW, NOW + 60, 1)
        assert name == lease.name
        assert name.startswith("lease-me-")
        assert (scene.process.slots_in_use, scene.process.grants) == (1, 8)
        scene.aws.made.clear()
    assert scene.aws.made == ["UpdateItem"]
    assert (scene.held, scene.process.slots_in_use) == ({}, 0)


def test_in_a_lambda_function_a_lease_ends_at_the_deadline_rounded_up(scene: LeaseScene) -> None:
    with scene.leases.lease("p", scene.invocation(29.25)) as lease:
        assert _the_lease(scene).until == NOW + 30
        assert lease.remaining() == 29.25


@pytest.mark.parametrize("target", ["none", "job"])
@pytest.mark.parametrize(("weight", "held"), [(None, 2), (3, 3), (1, 1)])
def test_a_weight_is_taken_and_given_back(weight: int | None, held: int, target: str) -> None:
    scene = LeaseScene(5, target)
    scene.change(default_weight=number(2))
    for _ in range(2):  # the second one reads first
        with scene.leases.lease("p", seconds=60, weight=weight):
            assert (scene.process.slots_in_use, _the_lease(scene).weight) == (held, held)
        assert scene.process.slots_in_use == 0


def test_a_failing_block_frees_its_slot_and_raises_its_own_exception(scene: LeaseScene) -> None:
    with pytest.raises(KeyError, match="mine"), scene.leases.lease("p", seconds=60):
        raise KeyError("mine")
    assert scene.held == {}


def test_a_failing_block_raises_its_own_exception_with_a_note_if_the_lease_was_lost(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    block.__enter__()
    _lose_all_holders(scene)
    mine = KeyError("mine")
    assert not block.__exit__(KeyError, mine, None)  # it is raised, and no SlotLost
    assert "ended before its block" in mine.__notes__[0]


def test_a_release_that_fails_is_logged_and_the_result_of_the_block_is_kept(
    scene: LeaseScene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger=leases.logger.name)
    with scene.leases.lease("p", seconds=60):
        refuse(scene.dynamodb, "UpdateItem", "InternalServerError")
    assert "Could not release a slot of p" in caplog.text
    assert scene.owners == ["me"]


# The end


def test_remaining_counts_down_by_both_clocks_and_the_shorter_time_counts(scene: LeaseScene) -> None:
    monotonic = [0.0]
    with scene.caller(monotonic=lambda: monotonic[0]).lease("p", seconds=60) as lease:
        monotonic[0] = 10
        scene.clock.time -= 3600  # a correction of the clock
        assert lease.remaining() == 50
        scene.clock.time = NOW + 40  # a suspended machine
        assert lease.remaining() == 20
        monotonic[0] = 61
        assert lease.remaining() == 0
        scene.clock.time = NOW
    monotonic[0] = 0
    assert lease.remaining() == 0


def test_extend_moves_the_end_in_the_table_and_here(scene: LeaseScene) -> None:
    with scene.leases.lease("p", seconds=60) as lease:
        scene.clock.time += 50
        for seconds in (60.5, 10):  # never back
            lease.extend(seconds)
            assert (_the_lease(scene).until, lease.remaining()) == (NOW + 111, 60.5)


def test_a_lease_that_another_caller_removed_cannot_be_extended_and_its_exit_raises(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    lease = block.__enter__()
    _lose_all_holders(scene)
    with pytest.raises(SlotLost, match=r"cannot extend.*no longer held"):
        lease.extend(60)
    with pytest.raises(SlotLost, match="ended before its block"):
        block.__exit__(None, None, None)
    with pytest.raises(SlotLost, match="no longer held"):
        lease.extend(60)


def test_a_lease_of_the_same_name_keeps_its_slot_at_the_late_exit_of_another(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    lease = block.__enter__()
    _lose_all_holders(scene)
    scene.expired(name=lease.name)
    with pytest.raises(SlotLost):
        block.__exit__(None, None, None)
    assert list(scene.held) == [lease.name]


def test_a_release_whose_answer_was_lost_has_succeeded_when_botocore_repeats_it(scene: LeaseScene) -> None:
    with scene.leases.lease("p", seconds=60):
        _lose_all_holders(scene)
        refuse(scene.dynamodb, "UpdateItem", "ConditionalCheckFailedException", retry_attempts=1)


# Which caller gets a slot


def test_the_refusal_names_the_limit_and_the_ages_of_the_holders(scene: LeaseScene) -> None:
    scene.change(slot_limit=number(2))
    scene.hold({name: running() | {"since": number(int(NOW) - age)} for name, age in {"p-1": 12, "p-2": 340}.items()})
    refused = _refused(scene, wait=3)
    assert str(refused) == (
        "no slot of 'p' was available within 3 s: all slots are in use. Limit 2, in use 2 by 2 holders, since 343 s, "
        "15 s. The block did not run. Try again, or wait longer with wait="
    )
    assert refused.seen.slot_limit == 2


FULL_ITEM = {
    "holders": {"M": {f"p-{at}": {"M": running()} for at in range(MAX_HOLDERS)}},
    "slot_limit": number(1000),
    "slots_in_use": number(MAX_HOLDERS),
}


def test_a_grant_whose_answer_was_lost_is_recognized_by_its_code(scene: LeaseScene) -> None:
    _make_twice(scene)
    with scene.leases.lease("p", seconds=60):
        assert (scene.owners, scene.process.slots_in_use) == (["me"], 1)
    assert scene.held == {}


def test_another_lease_of_the_same_name_is_no_grant(scene: LeaseScene) -> None:
    scene.change(slot_limit=number(2))
    taken = scene.expired(name="lease-me-00000000", age=-60)
    numbers = iter(["c" * 32, "0" * 32, "1" * 32])  # the code, and two names
    with scene.caller(new_code=lambda: next(numbers)).lease("p", seconds=60, wait=1) as lease:
        assert lease.name == "lease-me-11111111"
    assert list(scene.held) == [taken]


def test_a_signal_during_the_call_leaves_no_slot_taken(scene: LeaseScene) -> None:
    def interrupt(**_: Any) -> None:
        if not interrupted:
            interrupted.append(True)
            raise SystemExit(143)

    interrupted: list[bool] = []
    scene.dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", interrupt)
    with pytest.raises(SystemExit), scene.leases.lease("p", seconds=60):
        pass
    assert scene.held == {}


def test_a_block_does_not_begin_after_the_end_of_its_lease(scene: LeaseScene) -> None:
    def delay(**_: Any) -> None:
        scene.clock.time += 12

    scene.dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", delay)
    with pytest.raises(SlotLost, match="The block did not run"), scene.leases.lease("p", seconds=5):
        pytest.fail("the block runs")
    assert scene.held == {}


def _start_one_of_two_requests(scene: LeaseScene) -> None:
    """A slot is free, but the request that waits needs two."""
    scene.change(target={"S": "job"})
    scene.queue("a")
    scene.queue("b", weight=2)
    scene.dispatch()


RATE = {"rate": Rate(10, 60).item, "next_start": number(int(NOW + 6) * 1000)}
REASONS: dict[str, tuple[Act, int, str]] = {
    "it is paused": (lambda it: it.change(paused={"BOOL": True}), 1, "the process is paused. An operator must resume"),
    "a weight above the limit": (
        lambda it: it.change(slot_limit=number(2)),
        3,
        "the lease's weight 3 is above the limit",
    ),
    "the limit is 0": (lambda it: it.change(slot_limit=number(0)), 1, "weight 1 is above the limit"),
    "less is free": (
        lambda it: it.change(slots_in_use=number(1)),
        2,
        "weight 2 does not fit. Limit 2, in use 1 by no holder",
    ),
    "it is full": (lambda it: it.hold({"p-x": running(2)}), 1, "all slots are in use"),
    "the counter has drifted up": (lambda it: it.change(slots_in_use=number(2)), 1, "all slots are in use"),
    "the counter has drifted down": (
        lambda it: (it.hold({"p-x": running(), "p-y": running()}), it.change(slots_in_use=number(0))),
        1,
        "all slots are in use",
    ),
    "it has as many holders as it may have": (lambda it: it.change(**FULL_ITEM), 1, "a process can have 500 holders"),
    "its rate": (lambda it: it.change(**RATE), 1, "its rate of 10/minute permits the next start in 6.0 s"),
    "requests": (_start_one_of_two_requests, 1, "requests in the queue come first"),
}


@pytest.mark.parametrize("target", ["none", "job"])
@pytest.mark.parametrize("when", ["before", "before the write", "since the read"])
@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_names_its_reason_which_the_write_alone_finds(reason: str, when: str, target: str) -> None:
    act, weight, message = REASONS[reason]
    scene = LeaseScene(2, target)
    if when == "before":
        act(scene)
    else:
        before_write(scene.dynamodb, lambda _: act(scene))
    if when == "since the read":
        scene.leases.steps._read_first.add("p")
    _refused(scene, message, weight=weight)
    assert scene.owners == []


@pytest.mark.parametrize(("before", "after"), [(2, 3), (1, 2), (2, 1)])
def test_a_default_weight_of_a_process_that_was_added_again_is_used(before: int, after: int) -> None:
    scene = LeaseScene(limit=9)
    scene.change(default_weight=number(before))
    scene.leases.steps._read_first.add("p")
    before_write(scene.dynamodb, lambda _: scene.change(default_weight=number(after)))
    with scene.leases.lease("p", seconds=60):
        assert _the_lease(scene).weight == after


# A process that also runs requests


@pytest.fixture
def shared() -> LeaseScene:
    """The process has two slots, and runs requests too."""
    return LeaseScene(2, "job")


def test_a_lease_is_planned_behind_the_queue_with_two_reads_and_a_write(shared: LeaseScene) -> None:
    shared.aws.made.clear()
    _hold(shared.leases)
    # The first write is refused, which finds the target. The last read is of the queue, which is empty.
    assert shared.aws.made == ["UpdateItem", "Query", "UpdateItem", "UpdateItem", "Query"]
    shared.aws.made.clear()
    _hold(shared.leases)
    assert shared.aws.made == ["GetItem", "Query", "UpdateItem", "UpdateItem", "Query"]
    assert (shared.rings, shared.process.grants) == ([], 9)


# The query leaves out only requests that state a weight.
def _queue_blocked(scene: LeaseScene) -> None:
    scene.change(default_weight=number(3))
    scene.queue(*"abcdef")


@pytest.mark.parametrize(
    ("act", "comes_first"),
    [
        (lambda it: it.queue("a"), True),
        (lambda it: (it.hold({"p-x": running()}), it.queue("a", weight=2)), True),
        (lambda it: (_queue_blocked(it), it.queue("g", weight=1)), True),
        (_queue_blocked, False),
        (lambda it: it.queue("a", "b", weight=3), False),
        (lambda it: it.hold({it.queue("a")[0]: running()}), False),
        (lambda it: it.queue("late", start_before="2027-01-15T08:00:00Z"), False),
    ],
    ids=["may start", "does not fit", "behind blocked ones", "blocked", "never read", "runs already", "leaves"],
)
def test_a_request_that_waits_comes_first_unless_it_is_blocked(act: Act, comes_first: bool, shared: LeaseScene) -> None:
    act(shared)
    if comes_first:
        _refused(shared, "requests in the queue come first", weight=1)
    else:
        with shared.leases.lease("p", seconds=60, weight=1):
            assert len(shared.owners) == 1
    assert shared.owners == []


def test_without_the_table_of_its_requests_nothing_is_taken(shared: LeaseScene) -> None:
    with pytest.raises(LookupError, match=r"Set REQUEST_TABLE_NAME and DISPATCH_QUEUE_URL\. Nothing was taken"):
        _hold(shared.caller(request_table_name=""))
    assert shared.owners == []


def test_a_process_for_leases_needs_no_table_of_requests_and_no_doorbell(scene: LeaseScene) -> None:
    scene.expired()
    assert _hold(scene.caller(request_table_name="", dispatch_queue_url="")) == "held"
    assert (scene.rings, "Query" in scene.aws.made) == ([], False)


# Rings


@pytest.fixture
def skipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    monkeypatch.setattr(leases, "_count_skipped_ring", names.append)
    return names


@pytest.mark.parametrize("weight", [1, 3])
def test_the_end_of_a_block_rings_if_a_request_waits(weight: int, shared: LeaseScene, skipped: list[str]) -> None:
    """Also a blocked one: the ring costs no more than a read of the limit."""
    with shared.caller().lease("p", seconds=60):
        shared.queue("a", weight=weight)
        assert shared.rings == []
    assert (shared.rings, skipped) == ([({"process": "p"}, 0)], [])


def test_without_a_waiting_request_nothing_is_counted(shared: LeaseScene, skipped: list[str]) -> None:
    shared.expired()
    _hold(shared.caller(dispatch_queue_url=""))
    assert skipped == []


@pytest.mark.parametrize(
    ("url", "fail", "reason"),
    [
        ("", lambda _: None, "DISPATCH_QUEUE_URL is not set"),
        ("https://sqs/bells", lambda scene: refuse(scene.sqs, "SendMessage", "AccessDenied"), "ClientError"),
        ("https://sqs/bells", lambda scene: refuse(scene.dynamodb, "Query", "AccessDenied"), "ClientError"),
    ],
)
def test_a_ring_that_is_not_possible_is_counted_and_the_block_succeeds(
    url: str, fail: Act, reason: str, shared: LeaseScene, skipped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger=lease_protocol.__name__)
    with shared.caller(dispatch_queue_url=url).lease("p", seconds=60):
        shared.queue("a")
        fail(shared)
    assert (skipped, shared.held, shared.rings) == (["p"], {}, [])
    assert f"Freed a slot of p without a dispatch: {reason}" in caplog.text


def test_in_lambda_a_skipped_ring_is_a_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leases._count_skipped_ring("p")
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    leases._count_skipped_ring("p")
    assert '"LeaseRingsSkipped":[1.0]' in capsys.readouterr().out


# Expired leases


@pytest.mark.parametrize("target", ["none", "job"])
def test_an_expired_lease_is_removed_by_the_next_caller_and_may_be_released_early(target: str) -> None:
    scene = LeaseScene(target=target)
    scene.expired()
    with scene.leases.lease("p", seconds=60) as lease:
        assert (scene.owners, scene.process.slots_in_use) == (["me"], 1)
        lease.release()
        assert (scene.held, lease.remaining()) == ({}, 0.0)


def test_a_removal_rings_also_if_its_answer_was_lost(shared: LeaseScene) -> None:
    shared.expired()
    shared.queue("a")
    _refused(shared, "requests in the queue")
    assert (shared.held, shared.rings) == ({}, [({"process": "p"}, 0)])
    name = shared.expired()
    _make_twice(shared)
    shared.leases.steps.expire(shared.process, name)
    assert len(shared.rings) == 2


# Waiting


def test_a_caller_waits_until_a_slot_is_free(scene: LeaseScene) -> None:
    scene.hold({"p-other": running()})
    scene.clock.during_waits = [lambda: None, lambda: scene.free("p-other")]
    with scene.leases.lease("p", seconds=60, wait=20):
        assert _the_lease(scene).until == math.ceil(scene.clock.time + 60)
    assert len(scene.clock.waits) == 2


def test_a_caller_waits_until_its_rate_permits_a_start(scene: LeaseScene) -> None:
    scene.change(rate=Rate(10, 60).item, next_start=number(int(NOW + 6) * 1000))
    with scene.leases.lease("p", seconds=60, wait=20):
        assert scene.clock.waits == [6]
    assert scene.process.next_start == int(NOW + 12) * 1000


def test_while_it_waits_a_caller_reads_and_does_not_write(scene: LeaseScene) -> None:
    scene.hold({"p-other": running()})
    scene.aws.made.clear()
    _refused(scene, wait=5)
    assert scene.aws.made.count("UpdateItem") == 1
    scene.aws.made.clear()
    _refused(scene)
    assert scene.aws.made == ["GetItem"]


@pytest.mark.parametrize(("holders", "times"), [(0, 1), (200, 3)])
def test_the_waits_are_random_double_up_to_a_maximum_and_end_at_the_given_time(
    holders: int, times: int, scene: LeaseScene
) -> None:
    """With many holders they are longer, since a read of the item costs more."""
    asked: list[float] = []
    scene.hold({f"p-{at}": running() for at in range(holders)})
    scene.change(slot_limit=number(0))
    scene.leases = scene.caller(jitter=lambda low, high: asked.append(low) or high)
    _refused(scene, wait=20)
    first = FIRST_WAIT_SECONDS * times
    assert scene.clock.waits[:3] == pytest.approx([first * 2, first * 4, first * 8])
    assert max(scene.clock.waits) == LONGEST_WAIT_SECONDS * times
    assert sum(scene.clock.waits) == pytest.approx(20)
    assert set(asked) == {FIRST_WAIT_SECONDS}


@pytest.mark.parametrize(("seconds", "waited"), [(None, 9), (4, 6)])
def test_waiting_ends_while_the_invocation_has_time_for_the_block(
    seconds: float | None, waited: float, scene: LeaseScene
) -> None:
    scene.hold({"p-other": running()})
    refused = _refused(scene, context=scene.invocation(10), seconds=seconds, wait=20)
    assert sum(scene.clock.waits) == pytest.approx(waited)
    assert f"within {waited} s" in str(refused)


# Refused before anything is taken


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"process": "", "seconds": 1}, "process name must be 1 to 47 characters"),
        ({}, "a lease needs an end: pass the context of the Lambda function, or seconds="),
        ({"context": 60}, r"context must be the object that Lambda passes to the handler, got 60"),
        ({"seconds": 0}, r"seconds must be a number above 0 and up to 86400, got 0"),
        ({"seconds": MAX_LEASE_SECONDS + 1}, "up to 86400, got 86401. Extend a lease"),
        ({"seconds": math.nan}, "got nan"),
        ({"seconds": "60"}, "got '60'"),
        ({"seconds": 60, "wait": -1}, "wait must be a finite number of seconds, 0 or more, got -1"),
        ({"seconds": 60, "wait": math.inf}, "wait must be a finite number"),
        ({"seconds": 60, "weight": 0}, f"weight must be a whole number from 1 to {MAX_WEIGHT}, got 0"),
        ({"seconds": 60, "weight": True}, "weight must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_taken(
    arguments: dict[str, Any], message: str, scene: LeaseScene
) -> None:
    made = Calls(scene.dynamodb).made
    with pytest.raises(ValueError, match=message), scene.leases.lease(**{"process": "p"} | arguments):
        pass
    assert made == []


def test_a_lease_longer_than_the_invocation_is_refused(scene: LeaseScene) -> None:
    made = Calls(scene.dynamodb).made
    message = r"a lease of 60 s is longer than the invocation, which ends in 29.0 s"
    with pytest.raises(ValueError, match=message), scene.leases.lease("p", scene.invocation(29), seconds=60):
        pass
    assert made == []
    with scene.leases.lease("p", scene.invocation(29), seconds=20) as lease, pytest.raises(ValueError, match="longer"):
        lease.extend(60)


def test_an_unknown_process_is_named_with_its_table(scene: LeaseScene) -> None:
    message = "process 'q' does not exist in table slots. Add it with slotkeeper process add"
    for weight in (None, 2):
        with pytest.raises(LookupError, match=message), scene.leases.lease("q", seconds=60, wait=20, weight=weight):
            pass
    assert scene.clock.waits == []


def test_a_malformed_process_is_named_with_its_attribute(scene: LeaseScene) -> None:
    scene.change(slot_limit={"S": "1"})
    with (
        pytest.raises(MalformedProcess, match="process 'p' of table slots: slot_limit must be of DynamoDB type N"),
        scene.leases.lease("p", seconds=60, weight=2),
    ):
        pass


# Nested blocks, threads, tasks and forks


def test_a_nested_lease_of_one_process_is_refused(scene: LeaseScene) -> None:
    scene.change(slot_limit=number(2))
    scene.aws.tables.put("slots", scene.item | {"process_name": {"S": "q"}})
    with scene.leases.lease("p", seconds=60):
        with pytest.raises(NestedLease, match="this thread or asyncio task already holds a slot of 'p'"):
            scene.other.lease("p", seconds=60).__enter__()
        assert scene.process.slots_in_use == 1
        with scene.leases.lease("q", seconds=60) as of_another_process:
            assert of_another_process.is_of("slots", "q")
            assert not of_another_process.is_of("others", "q")
        assert _in_a_thread(lambda: _hold(scene.other)) == "held"  # another thread
    assert _hold(scene.leases) == "held"  # one after the other


def test_asyncio_tasks_hold_leases_side_by_side(scene: LeaseScene) -> None:
    """The tasks of one thread. A task that a block has started counts as the block, which may wait for it."""
    scene.change(slot_limit=number(2))

    async def hold(held: asyncio.Barrier) -> str:
        with scene.leases.lease("p", seconds=60):
            await held.wait()
            with pytest.raises(NestedLease):
                await asyncio.create_task(hold(held))
        return "held"

    async def both() -> list[str]:
        held = asyncio.Barrier(2)
        return await asyncio.gather(hold(held), hold(held))

    assert asyncio.run(both()) == ["held", "held"]
    assert scene.held == {}


def test_a_block_that_another_thread_leaves_is_not_held_any_more(scene: LeaseScene) -> None:
    def block() -> Iterator[None]:
        with scene.leases.lease("p", seconds=60):
            yield

    suspended = block()
    next(suspended)
    _in_a_thread(suspended.close)
    assert scene.held == {}
    assert _hold(scene.leases) == "held"


def test_a_lease_whose_block_is_entered_manually_is_held(scene: LeaseScene) -> None:
    """Python closes the generator of a context manager as soon as it is not referenced any more."""
    lease = scene.leases.lease("p", seconds=60).__enter__()
    gc.collect()
    assert list(scene.held) == [lease.name]
    lease.release()


def test_a_lease_is_for_one_block(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    with block:
        pass
    with pytest.raises(RuntimeError, match="Nothing was taken"), block:
        pass
    assert scene.held == {}


def test_a_fork_does_not_free_the_slot_of_its_parent_and_may_take_one_itself(
    scene: LeaseScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.change(slot_limit=number(2))
    with scene.leases.lease("p", seconds=60) as lease:
        monkeypatch.setattr(leases.os, "getpid", lambda: 1)
        assert lease.remaining() == 60
        lease.release()
        assert list(scene.held) == [lease.name]
        assert _hold(scene.leases) == "held"
        monkeypatch.undo()
    assert scene.held == {}


def test_a_fork_while_another_thread_creates_a_client_can_create_its_own() -> None:
    """A process of its own, because a fork of this one copies what other tests have started."""
    code = """
import os, signal, threading, boto3
from slotkeeper.slots import Leases

begun, forked, create = threading.Event(), threading.Event(), boto3.client

def slow(*given, **more):
    begun.set()
    forked.wait(0.5)  # the fork waits until this thread has its client, unless the bug is back
    return create(*given, **more)

boto3.client = slow
threading.Thread(target=Leases, args=("slots",)).start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    boto3.client = create
    Leases("slots")
    os._exit(7)
forked.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# The function


def test_the_function_uses_the_tables_of_the_environment(scene: LeaseScene, monkeypatch: pytest.MonkeyPatch) -> None:
    leases._leases_of.cache_clear()
    monkeypatch.setattr(leases.boto3, "client", lambda service, **_: getattr(scene, service))
    with pytest.raises(ValueError, match="SLOT_TABLE_NAME"):
        slots.lease("p", seconds=60)
    monkeypatch.setenv("SLOT_TABLE_NAME", "slots")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "my.function")
    for _ in range(2):
        with slots.lease("p", seconds=60) as lease:
            assert lease.name.startswith("lease-my-function-")
    assert leases._leases_of.cache_info().currsize == 1
    with pytest.raises(ClientError, match="ResourceNotFound"), slots.lease("p", seconds=60, table="other"):
        pass
    scene.change(target={"S": "job"})
    with pytest.raises(LookupError), slots.lease("p", seconds=60):
        pass
    leases._leases_of.cache_clear()
    monkeypatch.setenv("REQUEST_TABLE_NAME", "requests")
    monkeypatch.setenv("DISPATCH_QUEUE_URL", "https://sqs/bells")
    with slots.lease("p", seconds=60):
        scene.queue("a")
    assert scene.rings == [({"process": "p"}, 0)]
    leases._leases_of.cache_clear()
