"""Leases: what a block of code holds, for how long, and what its caller learns. tests/races has their races."""

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
from botocore.exceptions import ClientError, ReadTimeoutError

from slotkeeper import slots
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import Leases, MalformedProcess, NestedLease, SlotLost, SlotUnavailable, lease_protocol, leases
from slotkeeper.slots.leases import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, MAX_LEASE_SECONDS, Length
from slotkeeper.slots.process import MAX_WEIGHT
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Candidate, LeaseTerm, Registration
from tests.support.boundary import Calls, before_write, lose_answer, passed_values, refuse
from tests.support.tables import create_table
from tests.unit.conftest import FULL, NOW, Account
from tests.unit.slots.lease_scene import LeaseScene


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    """The simulation silences the logger in its process."""
    caplog.set_level("WARNING", logger=lease_protocol.__name__)


@pytest.fixture
def scene(account: Account) -> LeaseScene:
    return LeaseScene(account)


def _the_lease(scene: LeaseScene) -> Any:
    ((_, holder),) = scene.holders().items()
    return holder


def _refused(scene: LeaseScene, match: str | None = None, **arguments: Any) -> SlotUnavailable:
    """Why a lease of `p` for a minute is refused."""
    with pytest.raises(SlotUnavailable, match=match) as refused, scene.leases.lease("p", **{"seconds": 60} | arguments):
        pass
    return refused.value


# the block


def test_a_block_holds_a_slot_with_one_write_and_frees_it_with_another(scene: LeaseScene) -> None:
    made = Calls(scene.account.dynamodb, scene.account.sqs).made
    with scene.leases.lease("p", seconds=60) as lease:
        assert made == ["UpdateItem"]
        ((name, holder),) = scene.holders().items()
        assert (holder.state, holder.since, holder.until, holder.weight) == ("LEASED", NOW, NOW + 60, 1)
        assert name == lease.name
        assert name.startswith("lease-me-")
        assert scene.account.item().slots_in_use == 1
        assert scene.account.reserve("p-1") == FULL
        made.clear()
    assert made == ["UpdateItem"]
    assert (scene.holders(), scene.account.item().slots_in_use) == ({}, 0)


def test_an_expired_lease_is_taken_over_in_one_write_and_may_be_released_early(scene: LeaseScene) -> None:
    scene.expired()
    made = Calls(scene.account.dynamodb).made
    with scene.leases.lease("p", seconds=60) as lease:
        assert made == ["UpdateItem", "UpdateItem"]  # the refusal, the takeover
        assert (scene.owners(), scene.account.item().slots_in_use) == (["me"], 1)
        lease.release()
        assert (scene.holders(), lease.remaining()) == ({}, 0.0)


def test_in_a_lambda_function_a_lease_ends_at_the_deadline_rounded_up(scene: LeaseScene) -> None:
    with scene.leases.lease("p", scene.invocation(29.25)) as lease:
        assert _the_lease(scene).until == NOW + 30
        assert lease.remaining() == 29.25


@pytest.mark.parametrize(("weight", "held"), [(None, 2), (3, 3), (1, 1)])
def test_a_weight_is_taken_and_given_back(scene: LeaseScene, weight: int | None, held: int) -> None:
    scene.account.processes.set_limit("p", 5)
    scene.account.write("default_weight", {"N": "2"})
    with scene.leases.lease("p", seconds=60, weight=weight):
        assert (scene.account.item().slots_in_use, _the_lease(scene).weight) == (held, held)
    assert scene.account.item().slots_in_use == 0


@pytest.mark.parametrize("weight", [1, 2])
def test_a_blocked_request_keeps_no_lease_out(scene: LeaseScene, weight: int) -> None:
    """A lease of another weight than 1 is decided on what was read, and then by the write."""
    scene.account.processes.set_limit("p", 2)
    scene.account.reserve("p-1")
    assert scene.account.register("p-blocked", weight=9, sequence="2") == Registration.REGISTERED
    scene.account.slots.cancel("p", "p-1")
    with scene.leases.lease("p", seconds=60, weight=weight):
        assert scene.account.item().slots_in_use == weight


def test_a_failing_block_frees_its_slot_and_raises_its_own_exception(scene: LeaseScene) -> None:
    with pytest.raises(KeyError, match="mine"), scene.leases.lease("p", seconds=60):
        raise KeyError("mine")
    assert scene.holders() == {}


def test_a_failing_block_raises_its_own_exception_with_a_note_if_the_lease_was_lost(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    block.__enter__()
    scene.account.write("holders", {"M": {}})
    mine = KeyError("mine")
    assert not block.__exit__(KeyError, mine, None)  # it is raised, and no SlotLost
    assert "ended before its block" in mine.__notes__[0]


def test_a_release_that_fails_is_logged_and_the_result_of_the_block_is_kept(
    scene: LeaseScene, caplog: pytest.LogCaptureFixture
) -> None:
    with scene.leases.lease("p", seconds=60):
        refuse(scene.account.dynamodb, "UpdateItem", "InternalServerError")
    assert "Could not release a slot of p" in caplog.text
    assert scene.owners() == ["me"]


# the end


def test_remaining_counts_down_by_both_clocks_and_the_shorter_time_counts(scene: LeaseScene) -> None:
    monotonic = [0.0]
    caller = scene.caller(scene.clock, monotonic=lambda: monotonic[0])
    with caller.lease("p", seconds=60) as lease:
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
        lease.extend(60.5)
        assert (_the_lease(scene).until, lease.remaining()) == (NOW + 111, 60.5)
        lease.extend(10)  # never back
        assert (_the_lease(scene).until, lease.remaining()) == (NOW + 111, 60.5)


def test_an_extension_that_arrives_late_does_not_move_the_end_back(scene: LeaseScene) -> None:
    with scene.leases.lease("p", seconds=60) as lease:
        late = LeaseTerm(int(NOW) + 70, _the_lease(scene).code)
        lease.extend(100)
        assert scene.leases.steps.extend("p", lease.name, late)
        assert _the_lease(scene).until == NOW + 100


def test_a_lease_that_another_caller_removed_cannot_be_extended_and_its_exit_raises(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    lease = block.__enter__()
    scene.account.write("holders", {"M": {}})
    with pytest.raises(SlotLost, match=r"cannot extend.*no longer held"):
        lease.extend(60)
    with pytest.raises(SlotLost, match="ended before its block"):
        block.__exit__(None, None, None)
    with pytest.raises(SlotLost, match="no longer held"):
        lease.extend(60)


def test_a_lease_of_the_same_name_keeps_its_slot_at_the_late_exit_of_another(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    lease = block.__enter__()
    scene.account.write("holders", {"M": {}})
    scene.account.write("slots_in_use", {"N": "0"})
    scene.expired(name=lease.name)
    with pytest.raises(SlotLost):
        block.__exit__(None, None, None)
    assert list(scene.holders()) == [lease.name]


def test_a_release_whose_answer_was_lost_has_succeeded_when_botocore_repeats_it(scene: LeaseScene) -> None:
    with scene.leases.lease("p", seconds=60):
        scene.account.write("holders", {"M": {}})
        refuse(scene.account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", retry_attempts=1)


# who gets a slot


def test_the_refusal_names_the_limit_and_the_ages_of_the_holders(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 2)
    for name, age in {"p-1": 12, "p-2": 340}.items():
        scene.account.slots.reserve(Candidate("p", name), NOW - age)
    refused = _refused(scene, wait=3)
    assert str(refused) == (
        "no slot of 'p' was available within 3 s: all slots are in use. Limit 2, in use 2 by 2 holders, since 343 s, "
        "15 s. The block did not run. Try again, or wait longer with wait="
    )
    assert refused.seen.slot_limit == 2


@pytest.mark.parametrize(
    ("attribute", "value", "weight", "message"),
    [
        ("paused", {"BOOL": True}, 1, "the process is paused. An operator must resume it"),
        ("slot_limit", {"N": "2"}, 3, "the lease's weight 3 is above the limit"),
        ("slots_in_use", {"N": "1"}, 2, r"weight 2 does not fit. Limit 2, in use 1 by no holder"),
    ],
)
def test_the_refusal_names_its_reason(
    scene: LeaseScene, attribute: str, value: dict[str, Any], weight: int, message: str
) -> None:
    scene.account.processes.set_limit("p", 2)
    scene.account.write(attribute, value)
    _refused(scene, message, weight=weight)


def test_a_grant_whose_answer_was_lost_is_recognized_by_its_code(scene: LeaseScene) -> None:
    _make_twice(scene.account)
    with scene.leases.lease("p", seconds=60):
        assert scene.owners() == ["me"]
        assert scene.account.item().slots_in_use == 1
    assert scene.holders() == {}


def test_another_lease_of_the_same_name_is_no_grant(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 2)
    taken = scene.expired(name="lease-me-00000000", age=-60)
    numbers = iter(["c" * 32, "0" * 32, "1" * 32])  # the code, and two names
    caller = scene.caller(scene.clock, new_code=lambda: next(numbers))
    with caller.lease("p", seconds=60) as lease:
        assert lease.name == "lease-me-11111111"
    assert list(scene.holders()) == [taken]


def test_a_call_that_fails_leaves_no_slot_taken(scene: LeaseScene) -> None:
    lose_answer(scene.account.dynamodb, "UpdateItem")
    with pytest.raises(ReadTimeoutError), scene.leases.lease("p", seconds=60):
        pass
    assert scene.holders() == {}


# waiting


def test_a_caller_waits_until_a_slot_is_free(scene: LeaseScene) -> None:
    scene.account.fill()
    scene.clock.during_waits = [lambda: None, lambda: scene.account.slots.cancel("p", "p-other")]
    with scene.leases.lease("p", seconds=60, wait=20):
        assert _the_lease(scene).until == math.ceil(scene.clock.time + 60)
    assert len(scene.clock.waits) == 2


def test_while_it_waits_a_caller_reads_and_does_not_write(scene: LeaseScene) -> None:
    scene.account.fill()
    made = Calls(scene.account.dynamodb).made
    _refused(scene, wait=5)
    assert made.count("UpdateItem") == 1
    made.clear()
    _refused(scene)
    assert made == ["GetItem"]


@pytest.mark.parametrize(("holders", "times"), [(0, 1), (200, 3)])
def test_the_waits_are_random_double_up_to_a_maximum_and_end_at_the_given_time(
    scene: LeaseScene, holders: int, times: int
) -> None:
    """With many holders they are longer, since a read of the item costs more."""
    asked: list[float] = []
    entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}
    scene.account.write("holders", {"M": {f"p-{n}": entry for n in range(holders)}})
    scene.account.processes.set_limit("p", 0)
    scene.leases = scene.caller(scene.clock, jitter=lambda low, high: asked.append(low) or high)
    _refused(scene, wait=20)
    first = FIRST_WAIT_SECONDS * times
    assert scene.clock.waits[:3] == pytest.approx([first * 2, first * 4, first * 8])
    assert max(scene.clock.waits) == LONGEST_WAIT_SECONDS * times
    assert sum(scene.clock.waits) == pytest.approx(20)
    assert set(asked) == {FIRST_WAIT_SECONDS}


@pytest.mark.parametrize(("seconds", "waited"), [(None, 9), (4, 6)])
def test_waiting_ends_while_the_invocation_has_time_for_the_block(
    scene: LeaseScene, seconds: float | None, waited: float
) -> None:
    scene.account.fill()
    context = scene.invocation(10)
    refused = _refused(scene, context=context, seconds=seconds, wait=20)
    assert sum(scene.clock.waits) == pytest.approx(waited)
    assert f"within {waited} s" in str(refused)


# expired leases


def _extend(scene: LeaseScene) -> None:
    (name,) = scene.holders()
    assert scene.other.steps.extend("p", name, LeaseTerm(int(NOW) + 60, f"code of {name}"))


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (_extend, "all slots are in use"),
        (lambda scene: scene.account.wait_in_queue(), "requests in the queue"),
        (lambda scene: scene.account.processes.set_limit("p", 0), "Limit 0"),
    ],
    ids=["the lease is extended", "a request registers", "the limit is lowered"],
)
def test_what_happens_between_the_refusal_and_the_takeover_is_respected(
    scene: LeaseScene, act: Callable[[LeaseScene], object], reason: str
) -> None:
    name = scene.expired()
    before_write(scene.account.dynamodb, _nothing, lambda _: act(scene))
    _refused(scene, reason)
    assert list(scene.holders()) == ([name] if act is _extend else [])
    assert scene.is_visible() == (reason == "requests in the queue")


def test_a_takeover_is_refused_if_a_counter_below_the_holders_has_changed(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 10)
    scene.account.slots.reserve(Candidate("p", "p-1", 5), NOW)
    scene.expired(5)
    scene.account.write("slots_in_use", {"N": "5"})  # below the holders' 10
    before_write(scene.account.dynamodb, lambda _: scene.account.slots.reserve(Candidate("p", "p-2", 1), NOW))
    _refused(scene, weight=5)


@pytest.mark.parametrize(("expired", "mine", "limit"), [(3, 1, 3), (1, 3, 3), (2, 2, 2)])
def test_a_takeover_counts_the_difference_of_the_weights(
    scene: LeaseScene, expired: int, mine: int, limit: int
) -> None:
    scene.account.processes.set_limit("p", limit)
    scene.expired(expired)
    with scene.leases.lease("p", seconds=60, weight=mine):
        assert (scene.owners(), scene.account.item().slots_in_use) == (["me"], mine)


def test_several_expired_leases_give_way_to_a_heavy_one(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 3)
    for number in range(3):
        scene.expired(name=f"lease-dead-{number}")
    with scene.leases.lease("p", seconds=60, weight=3):
        assert (scene.owners(), scene.account.item().slots_in_use) == (["me"], 3)


def test_a_refused_caller_removes_an_expired_lease_and_wakes_the_request_that_comes_first(scene: LeaseScene) -> None:
    scene.expired()
    scene.account.wait_in_queue()
    assert not scene.is_visible()
    _refused(scene, "requests in the queue")
    assert scene.holders() == {}
    assert scene.is_visible()


def test_a_removal_whose_answer_was_lost_wakes_the_request_that_comes_first(scene: LeaseScene) -> None:
    name = scene.expired()
    scene.account.wait_in_queue()
    holder = scene.holders()[name]
    _make_twice(scene.account)
    scene.leases.steps.remove(scene.account.item(), name, holder)
    assert scene.is_visible()


# wakes


def test_the_end_of_a_block_wakes_the_waiting_request(scene: LeaseScene) -> None:
    with scene.leases.lease("p", seconds=60):
        scene.account.wait_in_queue()
        assert not scene.is_visible()
    assert scene.is_visible()


def test_the_end_of_a_lease_wakes_a_lower_priority_at_the_end_of_a_turn(scene: LeaseScene) -> None:
    scene.account.write("turn_seconds", {"N": "9"})
    scene.account.write("turn_high", {"N": f"{NOW - 2:.0f}000"})
    set_to = passed_values(scene.account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    with scene.leases.lease("p", seconds=60):
        scene.account.wait_in_queue()
        set_to.clear()
    assert set_to == [7]


@pytest.fixture
def skipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    monkeypatch.setattr(leases, "_count_skipped_wake", names.append)
    return names


def test_without_a_queue_url_a_due_wake_is_counted(scene: LeaseScene, skipped: list[str]) -> None:
    scene.account.write("queue_url", {"S": ""})
    with scene.caller(scene.clock).lease("p", seconds=60):
        scene.account.wait_in_queue()
    assert skipped == ["p"]


def test_without_a_waiting_request_nothing_is_counted(scene: LeaseScene, skipped: list[str]) -> None:
    scene.account.write("queue_url", {"S": ""})
    scene.expired()
    with scene.caller(scene.clock).lease("p", seconds=60):
        pass
    assert skipped == []


def test_without_permission_a_wake_is_counted_and_the_block_succeeds(
    scene: LeaseScene, skipped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    refuse(scene.account.sqs, "ChangeMessageVisibility", "AccessDenied")
    with scene.caller(scene.clock).lease("p", seconds=60):
        scene.account.wait_in_queue()
    assert skipped == ["p"]
    assert "Freed a slot of p without waking the next request: ClientError" in caplog.text
    assert scene.holders() == {}


def test_in_lambda_a_skipped_wake_is_a_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leases._count_skipped_wake("p")
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    leases._count_skipped_wake("p")
    assert '"LeaseWakesSkipped":[1.0]' in capsys.readouterr().out


# refused before anything is taken


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
    scene: LeaseScene, arguments: dict[str, Any], message: str
) -> None:
    made = Calls(scene.account.dynamodb).made
    with pytest.raises(ValueError, match=message), scene.leases.lease(**{"process": "p"} | arguments):
        pass
    assert made == []


def test_a_lease_longer_than_the_invocation_is_refused(scene: LeaseScene) -> None:
    made = Calls(scene.account.dynamodb).made
    message = r"a lease of 60 s is longer than the invocation, which ends in 29.0 s"
    with pytest.raises(ValueError, match=message), scene.leases.lease("p", scene.invocation(29), seconds=60):
        pass
    assert made == []
    with scene.leases.lease("p", scene.invocation(29), seconds=20) as lease, pytest.raises(ValueError, match="longer"):
        lease.extend(60)


def test_a_nested_lease_of_one_process_is_refused(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 2)
    scene.account.processes.create("q", 1, "job")
    with scene.leases.lease("p", seconds=60):
        with pytest.raises(NestedLease, match="this thread or asyncio task already holds a slot of 'p'"):
            scene.other.lease("p", seconds=60).__enter__()
        assert scene.account.item().slots_in_use == 1
        with scene.leases.lease("q", seconds=60):  # another process
            pass
        assert _in_a_thread(lambda: _hold(scene.other)) == "held"  # another thread
    assert _hold(scene.leases) == "held"  # one after the other


def test_a_lease_of_the_same_process_name_in_another_table_is_not_nested(scene: LeaseScene) -> None:
    account = scene.account
    create_table(account.dynamodb, "others", "process_name")
    Processes(account.dynamodb, "others").create("p", 1)
    with scene.leases.lease("p", seconds=60), Leases("others", account.dynamodb, account.sqs).lease("p", seconds=60):
        assert account.item().slots_in_use == 1


def test_asyncio_tasks_hold_leases_side_by_side(scene: LeaseScene) -> None:
    """The tasks of one thread. A task that a block has started counts as the block, which may wait for it."""
    scene.account.processes.set_limit("p", 2)

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
    assert scene.holders() == {}


def test_a_block_that_another_thread_leaves_is_not_held_any_more(scene: LeaseScene) -> None:
    def block() -> Iterator[None]:
        with scene.leases.lease("p", seconds=60):
            yield

    suspended = block()
    next(suspended)
    _in_a_thread(suspended.close)
    assert scene.holders() == {}
    assert _hold(scene.leases) == "held"


def test_a_lease_whose_block_is_entered_manually_is_held(scene: LeaseScene) -> None:
    """Python closes the generator of a context manager as soon as it is not referenced any more."""
    lease = scene.leases.lease("p", seconds=60).__enter__()
    gc.collect()
    assert list(scene.holders()) == [lease.name]
    lease.release()


def test_a_lease_is_for_one_block(scene: LeaseScene) -> None:
    block = scene.leases.lease("p", seconds=60)
    with block:
        pass
    with pytest.raises(RuntimeError, match="Nothing was taken"), block:
        pass
    assert scene.holders() == {}


def test_an_unknown_process_is_named_with_its_table(scene: LeaseScene) -> None:
    message = "process 'q' does not exist in table slots. Add it with slotkeeper process add"
    with pytest.raises(LookupError, match=message), scene.leases.lease("q", seconds=60, wait=20):
        pass
    assert scene.clock.waits == []


def test_a_malformed_process_is_named_with_its_attribute(scene: LeaseScene) -> None:
    scene.account.write("slot_limit", {"S": "1"})
    with (
        pytest.raises(MalformedProcess, match="process 'p' of table slots: slot_limit must be of DynamoDB type N"),
        scene.leases.lease("p", seconds=60),
    ):
        pass


# what goes wrong around the block


def test_two_leases_that_end_in_quick_succession_leave_the_head_registered(scene: LeaseScene) -> None:
    scene.account.processes.set_limit("p", 2)
    with scene.other.lease("p", seconds=60):
        pass
    first, second = (_of_another_process(scene) for _ in range(2))
    scene.account.wait_in_queue()
    first.release()
    scene.account.sqs.meta.events.register("before-call.sqs.ChangeMessageVisibility", _outdated)
    second.release()
    assert scene.account.item().first is not None
    _refused(scene, "requests in the queue come first")


def _of_another_process(scene: LeaseScene) -> Any:
    """A lease whose holder this thread is not."""
    return scene.leases._take("p", Length(None, 60), 0, None)


def _outdated(**_: Any) -> Any:
    """The message was made visible since, so SQS takes the handle no longer."""
    error = {"Code": "InvalidParameterValue", "Message": "Reason: The receipt handle has expired."}
    raise ClientError({"Error": error}, "ChangeMessageVisibility")


def test_a_signal_during_the_call_leaves_no_slot_taken(scene: LeaseScene) -> None:
    def interrupt(**_: Any) -> None:
        if not interrupted:
            interrupted.append(True)
            raise SystemExit(143)

    interrupted: list[bool] = []
    scene.account.dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", interrupt)
    with pytest.raises(SystemExit), scene.leases.lease("p", seconds=60):
        pass
    assert scene.holders() == {}


def test_a_block_does_not_begin_after_the_end_of_its_lease(scene: LeaseScene) -> None:
    def delay(**_: Any) -> None:
        scene.clock.time += 12

    scene.account.dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", delay)
    with pytest.raises(SlotLost, match="The block did not run"), scene.leases.lease("p", seconds=5):
        pytest.fail("the block runs")
    assert scene.holders() == {}


def test_a_fork_does_not_free_the_slot_of_its_parent(scene: LeaseScene, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene.leases.lease("p", seconds=60) as lease:
        monkeypatch.setattr(leases.os, "getpid", lambda: 1)
        assert lease.remaining() == 60
        lease.release()
        assert list(scene.holders()) == [lease.name]
        monkeypatch.undo()
    assert scene.holders() == {}


def test_a_repeated_release_after_an_overrun_reports_the_lost_lease(
    scene: LeaseScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeat(**kwargs: Any) -> Any:
        try:
            return update(**kwargs)
        except ClientError as error:
            error.response.setdefault("ResponseMetadata", {})["RetryAttempts"] = 1
            raise

    update = scene.account.dynamodb.update_item
    lease = _of_another_process(scene)
    scene.clock.time += 60 + CLOCK_SKEW_SECONDS
    assert scene.account.slots.release("p", lease.name, scene.holders()[lease.name].raw)
    monkeypatch.setattr(scene.account.dynamodb, "update_item", repeat)
    with pytest.raises(SlotLost):
        lease.release()


# the function


def test_the_function_uses_the_table_of_the_environment(scene: LeaseScene, monkeypatch: pytest.MonkeyPatch) -> None:
    leases._leases_of.cache_clear()
    with pytest.raises(ValueError, match="SLOT_TABLE_NAME"):
        slots.lease("p", seconds=60)
    monkeypatch.setenv("SLOT_TABLE_NAME", scene.account.slot_table)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "my.function")
    for _ in range(2):
        with slots.lease("p", seconds=60) as lease:
            assert lease.name.startswith("lease-my-function-")
    assert leases._leases_of.cache_info().currsize == 1
    with pytest.raises(ClientError, match="ResourceNotFound"), slots.lease("p", seconds=60, table="other"):
        pass


def test_a_forked_child_may_take_a_lease_although_its_parent_held_one_at_the_fork(
    scene: LeaseScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.account.processes.set_limit("p", 2)
    with scene.leases.lease("p", seconds=60):
        monkeypatch.setattr(leases.os, "getpid", lambda: 1)
        assert _hold(scene.leases) == "held"
        monkeypatch.undo()


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


def _hold(caller: Leases) -> str:
    with caller.lease("p", seconds=60):
        return "held"


def _in_a_thread[T](act: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


def _nothing(_: Any) -> None:
    """Before the first write, if an act belongs before the second one."""


def _make_twice(account: Account, number: int = 0) -> None:
    """Let a write be effective before it is made, as if botocore had repeated it after a lost answer."""
    before_write(account.dynamodb, *[_nothing] * number, lambda params: account.dynamodb.update_item(**params))
