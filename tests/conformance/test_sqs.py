"""Facts of SQS."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

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
    source=localstack_validated(MODULE, "test_fifo_receive_message_visibility_timeout_shared_in_group"),
    expected=[["a1"], ["b1"], []],
)
def fifo_blocks_one_group(make: MakeQueue) -> list[list[str]]:
    queue = make(fifo=True)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queue.send(body, group)
    return [[*queue.receive()] for _ in range(3)]


@FACTS.row(
    "A message of a FIFO queue that becomes visible again keeps its place in its group.",
    source=localstack_validated(MODULE, "test_fifo_receive_message_with_zero_visibility_timeout"),
    expected=[["a1"], ["a1"]],
)
def fifo_keeps_the_place(make: MakeQueue) -> list[list[str]]:
    queue = make(fifo=True)
    for body in ("a1", "a2"):
        queue.send(body)
    first = queue.receive()
    queue.hide(first["a1"], 0)
    return [[*first], [*queue.receive()]]


@FACTS.row(
    "A FIFO queue does not delete a message by a handle whose visibility timeout has ended; a standard queue does.",
    source=localstack(MODULE, "test_fifo_delete_after_visibility_timeout and test_delete_after_visibility_timeout"),
    expected=("InvalidParameterValue", "accepted", {"fifo": ["a"], "standard": []}),
)
def delete_after_the_timeout(make: MakeQueue) -> Any:
    queues = {"fifo": make(fifo=True, visibility=1), "standard": make(visibility=1)}
    codes = []
    for queue in queues.values():
        queue.send("a")
        handle = queue.receive_one()
        queue.let_expire()
        codes.append(queue.delete(handle))
    return *codes, {name: [*queue.receive()] for name, queue in queues.items()}


@FACTS.row(
    "The visibility of a deleted message cannot be changed.",
    source=localstack_validated(MODULE, "test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),
    expected=["InvalidParameterValue", "InvalidParameterValue"],
)
def deleted_cannot_be_hidden(make: MakeQueue) -> list[str]:
    codes = []
    for queue in (make(), make(fifo=True)):
        queue.send("a")
        handle = queue.receive_one()
        queue.delete(handle)
        codes.append(queue.hide(handle, 0))
    return codes


@FACTS.row(
    "A FIFO queue refuses to hide a message that is visible again.",
    source=documented("Amazon SQS API Reference, ChangeMessageVisibility, MessageNotInflight"),
    expected="MessageNotInflight",
)
def fifo_refuses_to_hide_a_visible_message(make: MakeQueue) -> str:
    queue = make(fifo=True)
    queue.send("a")
    handle = queue.receive_one()
    queue.hide(handle, 0)
    return queue.hide(handle, 60)


@FACTS.row(
    "On a FIFO queue the handle of an earlier receive neither hides nor deletes the message.",
    source=documented("re:Post, How do I resolve the ReceiptHandleIsInvalid or InvalidParameterValue error"),
    expected=["InvalidParameterValue", "InvalidParameterValue", "accepted"],
)
def fifo_refuses_an_earlier_handle(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("a")
    earlier = queue.receive_one()
    queue.hide(earlier, 0)
    newest = queue.receive_one()
    return [queue.hide(earlier, 0), queue.delete(earlier), queue.delete(newest)]


@FACTS.row(
    "A deletion of a deleted message succeeds.",
    source=localstack_validated(MODULE, "test_delete_message_with_deleted_receipt_handle"),
    expected=["accepted", "accepted"],
)
def delete_twice(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("a")
    handle = queue.receive_one()
    return [queue.delete(handle), queue.delete(handle)]


@FACTS.row(
    "A deduplication id counts after its message was deleted.",
    source=localstack(MODULE, "test_fifo_deduplication_arrives_once_after_delete"),
    expected=[],
)
def deduplication_after_a_deletion(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("same")
    queue.delete(queue.receive_one())
    queue.send("same")
    return [*queue.receive()]


@FACTS.row(
    "With the deduplication scope messageGroup, a deduplication id counts in its group only.",
    source=localstack(MODULE, "test_fifo_high_throughput_ordering"),
    expected=["same"],
)
def deduplication_per_group(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("same", "a")
    queue.delete(queue.receive_one())
    queue.send("same", "b")
    return [*queue.receive()]


@FACTS.row(
    "A call to a queue that does not exist is refused as NonExistentQueue.",
    source=localstack(MODULE, "test_non_existent_queue"),
    expected="NonExistentQueue",
)
def missing_queue(make: MakeQueue) -> str:
    queue = make()
    queue.send("a")
    handle = queue.receive_one()
    queue.move()
    return queue.hide(handle, 0)


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_sqs(fact: Fact[MakeQueue], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineQueue, aws), simulated=SimulatedQueue)
