"""Facts of SQS."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.conformance.facts import Fact, Facts, documented, localstack, localstack_validated
from tests.conformance.queues import EngineQueue, MakeQueue, SimulatedQueue

MODULE = "sqs/test_sqs.py"
EXTENDED = "test_fifo_group_visibility_extends_with_change_message_visibility"
FACTS: Facts[MakeQueue] = Facts()


@FACTS.row(
    "A standard queue hides a message by a handle whose visibility timeout has ended.",
    source=localstack(MODULE, "test_change_message_visibility_after_visibility_timeout_expiration"),
    expected="accepted",
)
def standard_hides_after_the_timeout(make: MakeQueue) -> str:
    queue = make(visibility=1)
    queue.send("a")
    handle = queue.receive_one()
    queue.let_expire()
    return queue.hide(handle, 60)


@FACTS.row(
    "On a standard queue the handle of an earlier receive makes visible what a later receive has hidden.",
    source=localstack_validated(MODULE, "test_terminate_visibility_timeout_after_receive"),
    expected=("accepted", ["a"]),
)
def standard_accepts_an_earlier_handle(make: MakeQueue) -> tuple[str, list[str]]:
    queue = make()
    queue.send("a")
    earlier = queue.receive_one()
    queue.hide(earlier, 0)
    queue.receive_one()
    return queue.hide(earlier, 0), [*queue.receive()]


@FACTS.row(
    "On a FIFO queue a message in flight blocks the later messages of its group and not the earlier ones.",
    source=localstack(MODULE, EXTENDED),
    expected=["a1"],
)
def fifo_delivers_before_one_in_flight(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    for body in ("a1", "a2", "a3"):
        queue.send(body)
    handles = queue.receive(10)
    for body in ("a1", "a3"):
        queue.hide(handles[body], 0)
    return [*queue.receive(10)]


@FACTS.row(
    "One receive from a FIFO queue may return several messages of a group, in their order.",
    source=localstack_validated(MODULE, "test_fifo_receive_message_group_id_ordering"),
    expected=["a1", "a2", "a3"],
)
def fifo_returns_several_of_a_group(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    for body in ("a1", "a2", "a3"):
        queue.send(body)
    return [*queue.receive(10)]


@FACTS.row(
    "A hidden head of a group of a FIFO queue blocks its group, and no other group.",
    source=documented("Amazon SQS Developer Guide, FIFO queue delivery logic"),
    expected=[["a1"], ["b1"], []],
)
def fifo_blocks_one_group(make: MakeQueue) -> list[list[str]]:
    queue = make(fifo=True)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queue.send(body, group)
    return [[*queue.receive()] for _ in range(3)]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_sqs(fact: Fact[MakeQueue], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineQueue, aws), simulated=SimulatedQueue)
